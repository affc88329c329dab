"""A subpath that hangs keeps the other threads of its pod for a moment only."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.volume.adapters import subpaths
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.adapters.subpaths import SubpathError, Subpaths
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
def hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Subpaths]:
    """One bind of pod `u` does not return."""
    entered, answers = threading.Event(), threading.Event()

    def bind(source: int, target: Path) -> None:
        if target.parts[-3] == "dead":
            entered.set()
            assert answers.wait(WAIT_SECONDS)

    monkeypatch.setattr(subpaths, "bind", bind)
    monkeypatch.setattr(subpaths, "LOCK_TIMEOUT_SECONDS", 0.05)
    paths = Subpaths(PodDirectories(str(tmp_path)))
    (tmp_path / "volume").mkdir()
    binding = threading.Thread(target=paths.prepare, args=("u", "dead", "c", 0, str(tmp_path / "volume"), "part"))
    binding.start()
    assert entered.wait(WAIT_SECONDS)
    yield paths
    answers.set()
    binding.join()


def test_another_subpath_of_the_pod_is_an_error_soon(hung: Subpaths, tmp_path: Path) -> None:
    with pytest.raises(SubpathError, match="waits for another subpath of the pod that does not return"):
        hung.prepare("u", "fine", "c", 1, str(tmp_path / "volume"), "part")
    with pytest.raises(OSError, match="does not return"):
        hung.release("u", "c")
    with pytest.raises(OSError, match="does not return"):
        hung.clean("u", "fine")


def test_the_subpath_of_another_pod_is_had(hung: Subpaths, tmp_path: Path) -> None:
    assert Path(hung.prepare("v", "fine", "c", 1, str(tmp_path / "volume"), "part")).is_dir()
