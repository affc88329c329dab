"""`pods/<uid>` as podsync and volume make it, whichever comes first."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from services.podsync.adapters.pod.pod_directories import PodDirectories as PodsyncDirectories
from services.volume.adapters.pod_directories import PodDirectories as VolumeDirectories
from shared.pods.directory import make_pod_directory, pod_directory


def by_podsync(root: Path) -> None:
    PodsyncDirectories(root, root / "logs").prepare("default", "web", "u", ["c"])


def by_volume(root: Path) -> None:
    VolumeDirectories(str(root)).make("u")


@pytest.mark.parametrize("makers", [(by_podsync, by_volume), (by_volume, by_podsync)])
def test_both_makers_make_the_same_directory(tmp_path: Path, makers: tuple[Callable[[Path], None], ...]) -> None:
    before = os.umask(0o077)
    try:
        for make in makers:
            make(tmp_path)
    finally:
        os.umask(before)
    pod = tmp_path / "pods" / "u"
    assert pod == pod_directory(tmp_path, "u")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (pod.parent, pod, *pod.iterdir())} == {0o750}
    assert sorted(path.name for path in pod.iterdir()) == ["plugins", "volumes"]


def test_a_directory_that_a_killed_process_made_with_another_mode_is_corrected(tmp_path: Path) -> None:
    (tmp_path / "pods" / "u").mkdir(parents=True, mode=0o700)
    assert stat.S_IMODE(make_pod_directory(tmp_path, "u").stat().st_mode) == 0o750


def test_a_directory_that_is_there_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_pod_directory(tmp_path, "u")
    monkeypatch.setattr(os, "mkdir", lambda *_: pytest.fail("mkdir waits for the file system's journal"))
    make_pod_directory(tmp_path, "u")


def test_a_file_in_the_place_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / "u").touch()
    with pytest.raises(NotADirectoryError):
        make_pod_directory(tmp_path, "u")
