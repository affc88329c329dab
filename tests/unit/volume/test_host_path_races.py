"""A container that may write where a hostPath is to be made puts something else in its place at the worst moment."""

import contextlib
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from services.volume.plugins.host_path import HostPath, check_host_path
from tests.support.waits.deadline import WAIT_SECONDS


def check(path: Path, kind: str) -> list[str]:
    """Check the hostPath in a thread; return its error."""
    errors: list[str] = []

    def run() -> None:
        try:
            check_host_path(HostPath(str(path), kind))
        except OSError as error:
            errors.append(str(error.strerror))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive(), "it hangs"
    return errors


@pytest.mark.parametrize("plant", [os.mkfifo, lambda path: path.symlink_to(path.parent / "victim")])
@pytest.mark.parametrize(("kind", "what"), [("FileOrCreate", "a file"), ("DirectoryOrCreate", "a directory")])
def test_what_appears_before_it_is_made_is_checked_and_neither_opened_nor_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[Path], None], kind: str, what: str
) -> None:
    path, exists = tmp_path / "wanted", Path.exists

    def missing(of: Path) -> bool:
        found = exists(of)
        if of == path and not os.path.lexists(path):
            plant(path)
        return found

    monkeypatch.setattr(Path, "exists", missing)
    assert check(path, kind) == [f"hostPath type check failed: {path} is not {what}"]
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("kind", ["FileOrCreate", "DirectoryOrCreate"])
def test_what_replaces_it_once_it_is_made_keeps_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path, victim = tmp_path / "wanted", tmp_path / "victim"
    victim.mkdir(mode=0o700)
    opened, mkdir = os.open, os.mkdir

    def replace() -> None:
        if path.exists() and not path.is_symlink():
            path.rename(tmp_path / "aside")
            path.symlink_to(victim)

    def open_and_lose(of: Path, *arguments: int, **more: int) -> int:
        descriptor = opened(of, *arguments, **more)
        replace()
        return descriptor

    def make_and_lose(of: Path, *arguments: int) -> None:
        mkdir(of, *arguments)
        replace()

    monkeypatch.setattr(os, "open", open_and_lose)
    monkeypatch.setattr(os, "mkdir", make_and_lose)
    with contextlib.suppress(OSError):
        check_host_path(HostPath(str(path), kind))
    assert path.is_symlink()
    assert stat.S_IMODE(victim.stat().st_mode) == 0o700
