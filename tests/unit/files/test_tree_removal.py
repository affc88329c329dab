"""Removing what containers left: deep trees, wide ones, links, odd names, and how much memory that takes."""

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.files import tree_removal
from shared.files.tree_removal import RemovalPausedError, RemovalProgress, remove_tree

FEW = 8  # moved directories that are remembered, where a test sets it


def make_files(directory: Path, count: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    opened = os.open(directory, os.O_RDONLY)
    for number in range(count):
        os.close(os.open(f"file-{number:08d}", os.O_CREAT | os.O_WRONLY, dir_fd=opened))
    os.close(opened)


def make_directories(directory: Path, count: int) -> None:
    for number in range(count):
        (directory / f"directory-{number:08d}").mkdir(parents=True)


def least_peak(top: Path, below: str, fill: Callable[[Path], object], entries: int) -> int:
    """The lesser peak (bytes) of two removals: in one of them the interpreter may enlarge its table of strings."""
    peaks = []
    for name in ("first", "second"):
        fill(top / name / below)
        removed = RemovalProgress()
        tracemalloc.start()
        try:
            remove_tree(top / name, removed)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert not (top / name).exists()
        assert removed.entries == entries + bool(below)
    return min(peaks)


@pytest.mark.long
def test_a_tree_deeper_than_any_path_is_removed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    here = os.open(victim, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    removed = RemovalProgress()
    remove_tree(victim, removed)
    assert not victim.exists()
    assert removed.entries == 1500


@pytest.mark.parametrize("every", [1, 7, 50])
def test_a_removal_that_pauses_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr(tree_removal, "MAX_REMEMBERED_NAMES", FEW)
    victim = tmp_path / "victim"
    for number in range(5):
        make_files(victim / f"inner-{number}" / "deeper", 20)
        make_directories(victim / f"inner-{number}", 20)

    class Pausing(RemovalProgress):
        """Asks for a pause whenever `every` entries are gone."""

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "entries" and self.entries and self.entries % every == 0:
                self.ask_to_pause()

    removed, pauses = Pausing(), 0
    while victim.exists():
        try:
            remove_tree(victim, removed)
        except RemovalPausedError:
            pauses += 1
            removed.pause = False
    assert removed.entries == 5 * (20 + 20 + 2)
    assert pauses >= 3


def test_links_are_removed_and_never_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    victim = tmp_path / "victim"
    (victim / "inner").mkdir(parents=True)
    (victim / "inner" / "link").symlink_to(outside)
    (victim / "link").symlink_to(outside / "file")
    os.mkfifo(victim / "fifo")
    remove_tree(victim)
    assert not victim.exists()
    assert (outside / "file").read_text() == "kept"


@pytest.mark.long
@pytest.mark.parametrize("below", ["", "inner"])
def test_memory_does_not_grow_with_the_number_of_files(tmp_path: Path, below: str) -> None:
    peak = least_peak(tmp_path, below, lambda victim: make_files(victim, 1_500), 1_500)
    assert peak < 64 << 10  # bytes; in one list, 50 000 names take 12 MiB


@pytest.mark.long
@pytest.mark.parametrize("below", ["", "inner"])
def test_memory_does_not_grow_with_the_number_of_directories(
    tmp_path: Path, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_removal, "MAX_REMEMBERED_NAMES", FEW)
    peak = least_peak(tmp_path, below, lambda victim: make_directories(victim, 1_500), 1_500)
    assert peak < 64 << 10


@pytest.mark.long
def test_directories_that_were_forgotten_are_removed_with_what_is_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_removal, "MAX_REMEMBERED_NAMES", FEW)
    for outer in range(2 * FEW):
        for inner in range(2 * FEW):
            make_files(tmp_path / "victim" / "x" / f"o{outer}" / f"i{inner}" / "deep", 2)
    removed = RemovalProgress()
    remove_tree(tmp_path / "victim", removed)
    assert not (tmp_path / "victim").exists()
    assert removed.entries == 1 + 2 * FEW * (1 + 2 * FEW * (1 + 1 + 2))


def test_names_that_are_not_utf8_and_names_like_our_own_are_removed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (victim / ".removing-0123456789abcdef-0" / "x").mkdir(parents=True)
    Path(os.fsdecode(os.fsencode(victim) + b"/\xff\xfe")).mkdir()
    os.close(os.open(os.fsencode(victim) + b"/\xff\xfe/\xfd", os.O_CREAT | os.O_WRONLY))
    remove_tree(victim)
    assert not victim.exists()


@pytest.mark.long
def test_few_descriptors_are_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "victim" / "/".join(["d"] * 200)).mkdir(parents=True)
    before, most = len(list(Path("/proc/self/fd").iterdir())), 0
    unlink = os.rmdir

    def counted(name: str, *, dir_fd: int | None = None) -> None:
        nonlocal most
        most = max(most, len(list(Path("/proc/self/fd").iterdir())))
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", counted)
    remove_tree(tmp_path / "victim")
    assert most - before <= 4


def test_a_removal_that_failed_goes_on_when_it_is_called_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_files(tmp_path / "victim" / "a" / "b", 20)
    unlink, allowed = os.unlink, 5

    def refusing(name: str, *, dir_fd: int | None = None) -> None:
        nonlocal allowed
        allowed -= 1
        if allowed < 0:
            raise PermissionError(1, "Operation not permitted", name)
        unlink(name, dir_fd=dir_fd)

    with monkeypatch.context() as broken, pytest.raises(PermissionError) as failed:
        broken.setattr(os, "unlink", refusing)
        remove_tree(tmp_path / "victim")
    assert failed.value.filename.startswith(str(tmp_path / "victim"))
    assert (tmp_path / "victim").exists()
    remove_tree(tmp_path / "victim")
    assert not (tmp_path / "victim").exists()


def test_a_directory_that_is_filled_all_the_time_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    make_files(victim, 1)
    unlink = os.unlink

    def filled(name: str, *, dir_fd: int | None = None) -> None:
        unlink(name, dir_fd=dir_fd)
        os.close(os.open("again", os.O_CREAT | os.O_WRONLY, dir_fd=dir_fd))

    monkeypatch.setattr(os, "unlink", filled)
    with pytest.raises(OSError, match="is filled while it is removed"):
        remove_tree(victim)
