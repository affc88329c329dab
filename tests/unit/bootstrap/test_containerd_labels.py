"""Containers of the embedded containerd get SELinux labels where their images have the label that these may use."""

import errno
import os
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from services.bootstrap.adapters import containerd_host, containerd_labels
from services.bootstrap.controllers.containerd_files import write_containerd_files
from shared.config.effective import EffectiveConfig, EmbeddedContainerd

FILE = "system_u:object_r:container_file_t:s0"
READ_ONLY_FILE = "system_u:object_r:container_ro_file_t:s0"
# the paths of which the policy of container-selinux labels the content, below the root
SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
SANDBOXES = "io.containerd.grpc.v1.cri/sandboxes"


class LabelledFiles:
    """A root of containerd on a node with SELinux: a file has the label that was set, else that of its directory."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.labels: dict[Path, bytes] = {directory: b"system_u:object_r:var_lib_t:s0"}
        self.refusal = 0  # errno

    def get(self, path: Path, attribute: str) -> bytes:
        assert path.exists() and attribute == "security.selinux"
        return next(self.labels[one] for one in (path, *path.parents) if one in self.labels) + b"\0"

    def set(self, path: Path, attribute: str, value: bytes) -> None:
        assert path.is_dir() and attribute == "security.selinux"
        if self.refusal:
            raise OSError(self.refusal, os.strerror(self.refusal))
        self.labels[path] = value

    def label(self, name: str) -> str:
        return self.get(self.root / name, "security.selinux").decode().rstrip("\0")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabelledFiles:
    files = LabelledFiles(tmp_path)
    monkeypatch.setattr(os, "getxattr", files.get)
    monkeypatch.setattr(os, "setxattr", files.set)
    monkeypatch.setattr(containerd_host, "selinux_enabled", lambda: True)
    monkeypatch.setattr(containerd_host, "policy_has_label", bool)
    monkeypatch.setattr(containerd_host, "_file_system_of", lambda _: "ext4")
    label: Callable[..., str] = lambda read_only=False: READ_ONLY_FILE if read_only else FILE  # noqa: E731
    monkeypatch.setattr(containerd_host, "container_file_label", label)
    monkeypatch.setattr(containerd_labels, "container_file_label", label)
    return files


def containers_get_labels(files: LabelledFiles) -> bool:
    """What containerd is told, before it starts."""
    directory = files.root.parent
    embedded = EmbeddedContainerd(
        path="/bin/true", root=str(files.root), state=f"{directory}/state", socket=f"{directory}/socket",
        config_file=f"{directory}/config.toml", cni_conf_dir=f"{directory}/cni",
    )  # fmt: skip
    config = EffectiveConfig(
        node_name="n", root_dir="/r", run_dir="/r", log_dir="/r", cert_dir="/r", pod_logs_dir="/r",
        embedded_containerd=embedded,
    )  # fmt: skip
    write_containerd_files(config)
    written = tomllib.loads(Path(embedded.config_file).read_text())
    return bool(written["plugins"]["io.containerd.grpc.v1.cri"]["enable_selinux"])


def test_what_containerd_makes_for_containers_has_their_label_from_its_first_start(files: LabelledFiles) -> None:
    assert containers_get_labels(files)
    assert (files.label(SNAPSHOTS), files.label(SANDBOXES)) == (FILE, READ_ONLY_FILE)
    assert stat.S_IMODE((files.root / SNAPSHOTS).stat().st_mode) == 0o700
    (files.root / SNAPSHOTS / "1" / "fs").mkdir(parents=True)
    (files.root / SANDBOXES / "ab").mkdir()
    before = dict(files.labels)
    assert containers_get_labels(files)
    assert files.labels == before


@pytest.mark.parametrize("name", [SNAPSHOTS, SANDBOXES])
def test_content_without_the_label_leaves_containers_without_labels(
    files: LabelledFiles, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    (files.root / name / "1").mkdir(parents=True)
    assert not containers_get_labels(files)
    assert "var_lib_t" in files.label(name)
    [line] = [record.getMessage() for record in caplog.records if "SELinux" in record.getMessage()]
    assert line.startswith(f"{files.root / name}: ")
    assert f"semanage fcontext -a -e /var/lib/containerd {files.root} && restorecon -R {files.root}" in line
    for labelled, label in ((SNAPSHOTS, FILE), (SANDBOXES, READ_ONLY_FILE)):  # by the operator
        files.labels[files.root / labelled] = label.encode()
    assert containers_get_labels(files)


@pytest.mark.parametrize("refusal", [errno.EINVAL, errno.EACCES, errno.EOPNOTSUPP])
def test_a_label_that_cannot_be_set_leaves_containers_without_labels(
    files: LabelledFiles, caplog: pytest.LogCaptureFixture, refusal: int
) -> None:
    files.refusal = refusal
    assert not containers_get_labels(files)
    [line] = [record.getMessage() for record in caplog.records if "SELinux" in record.getMessage()]
    assert os.strerror(refusal) in line and SNAPSHOTS in line


def test_a_kill_before_the_label_is_set_leaves_the_directory_to_the_next_start(files: LabelledFiles) -> None:
    (files.root / SNAPSHOTS).mkdir(parents=True)
    assert containers_get_labels(files)
    assert files.label(SNAPSHOTS) == FILE


def test_without_selinux_containerd_makes_its_directories_itself(
    files: LabelledFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containerd_host, "selinux_enabled", lambda: False)
    assert not containers_get_labels(files)
    assert not list(files.root.iterdir())
