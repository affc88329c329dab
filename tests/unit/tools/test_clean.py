"""`make clean` where config.json cannot be read, where shims do not end, and where others remove directories, too."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.config.effective import EmbeddedContainerd
from shared.errors import OperatorError
from tools import leftovers
from tools.clean import clean, presumed_config

KUBELET = """
kind: KubeletConfiguration
cgroupRoot: /mine
---
kind: BulkheadConfiguration
embeddedContainerd: {enabled: true, bridge: mine0, state: elsewhere}
"""


def test_without_a_configuration_the_layout_is_the_homes_and_the_network_that_of_kubelet_yaml(tmp_path: Path) -> None:
    (tmp_path / "kubelet.yaml").write_text(KUBELET)
    config = presumed_config(tmp_path)
    embedded = config.embedded_containerd
    assert embedded is not None
    assert (config.root_dir, config.cgroup_root) == (f"{tmp_path}/kubelet", "/mine")
    assert (embedded.root, embedded.state) == (f"{tmp_path}/containerd/root", f"{tmp_path}/elsewhere")
    assert (embedded.socket, embedded.bridge) == (f"{tmp_path}/run/containerd/containerd.sock", "mine0")


@pytest.mark.parametrize("text", ["{", "[]", "kind: [", "kind: BulkheadConfiguration\nembeddedContainerd: 3\n"])
def test_a_kubelet_yaml_of_no_use_leaves_the_defaults(tmp_path: Path, text: str) -> None:
    (tmp_path / "kubelet.yaml").write_text(text)
    embedded = presumed_config(tmp_path).embedded_containerd
    assert embedded is not None and embedded.bridge == EmbeddedContainerd.bridge


async def test_a_home_whose_shims_do_not_end_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / leftovers.HOME_MARKER).touch()
    (tmp_path / "kubelet.yaml").write_text(KUBELET.replace("/mine", f"/{tmp_path.name}"))
    monkeypatch.setattr(leftovers, "shims_of", lambda _home: [4711])
    monkeypatch.setattr(leftovers, "end_processes", lambda _pids: None)
    with pytest.raises(OperatorError, match=r"4711.*home kept"):
        await clean(tmp_path)
    assert tmp_path.exists()


def test_directories_that_are_removed_while_they_are_listed_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept/inner").mkdir(parents=True)
    (tmp_path / "removed").mkdir()
    scan = os.scandir

    def remove_first(path: str) -> Iterator[os.DirEntry[str]]:
        if Path(path).name == "removed":
            Path(path).rmdir()
        return scan(path)

    monkeypatch.setattr(os, "scandir", remove_first)
    assert leftovers.directories_below(tmp_path) == [tmp_path / "kept", tmp_path / "kept/inner"]
