"""A tree is walked a piece of a directory at a time, and so are those who walk one."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.podsync.adapters.cgroups import cgroup_removal
from services.volume.adapters.ownership import give_to_group
from shared.files import tree_walk
from shared.files.tree_walk import walk_bottom_up

PIECE, ENTRIES, DEEP = 10, 35, 100


class Stopped(BaseException):
    """The first entry is about to be changed."""


class Scans:
    """Takes the place of os.scandir: counts the entries that were read, and the directories open at once."""

    def __init__(self) -> None:
        self.read = self.open = self.most_open = 0
        self.scandir = os.scandir

    def __call__(self, path: Any) -> "Scan":
        return Scan(self, self.scandir(path))


class Scan:
    """One open directory."""

    def __init__(self, scans: Scans, entries: Any) -> None:
        self._scans, self._entries, self._open = scans, entries, True
        scans.open += 1
        scans.most_open = max(scans.most_open, scans.open)

    def __enter__(self) -> "Scan":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator["os.DirEntry[str]"]:
        return self

    def __next__(self) -> "os.DirEntry[str]":
        entry: os.DirEntry[str] = next(self._entries)
        self._scans.read += 1
        return entry

    def close(self) -> None:
        self._entries.close()
        self._scans.open -= self._open
        self._open = False


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> Scans:
    scans = Scans()
    monkeypatch.setattr(os, "scandir", scans)
    monkeypatch.setattr(tree_walk, "PIECE_ENTRIES", PIECE)
    return scans


def test_the_entries_of_a_directory_come_before_it_and_a_symlink_is_not_followed(tmp_path: Path, scans: Scans) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").touch()
    (tmp_path / "a/link").symlink_to(tmp_path)
    for number in range(ENTRIES):
        (tmp_path / f"{number}").touch()
    found = [os.path.relpath(entry.path, tmp_path) for entry in walk_bottom_up(tmp_path)]
    assert sorted(found) == sorted(["a", "a/b", "a/b/file", "a/link", *map(str, range(ENTRIES))])
    assert found.index("a/b/file") < found.index("a/b") < found.index("a") > found.index("a/link")


def test_a_deep_tree_takes_one_open_directory(tmp_path: Path, scans: Scans) -> None:
    deepest = tmp_path / "/".join("d" * DEEP)
    deepest.mkdir(parents=True)
    assert sum(1 for _ in walk_bottom_up(tmp_path)) == DEEP
    assert scans.most_open == 1 and scans.open == 0


def test_a_directory_that_cannot_be_listed_is_an_error_unless_those_are_skipped(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(walk_bottom_up(tmp_path / "none"))
    assert list(walk_bottom_up(tmp_path / "none", skip_unreadable=True)) == []


@pytest.mark.parametrize(
    ("call", "first"),
    [
        (lambda root: give_to_group(root, os.getgid()), "chown"),
        (cgroup_removal._remove, "rmdir"),
    ],
    ids=["ownership", "cgroup"],
)
def test_a_large_directory_is_not_listed_before_the_first_entry_is_worked_on(
    tmp_path: Path, scans: Scans, monkeypatch: pytest.MonkeyPatch, call: Callable[[Path], None], first: str
) -> None:
    for number in range(ENTRIES):
        (tmp_path / f"{number}").mkdir()

    def stop(*_: object, **__: object) -> None:
        raise Stopped(scans.read)

    monkeypatch.setattr(os, first, stop)
    with pytest.raises(Stopped) as stopped:
        call(tmp_path)
    assert stopped.value.args[0] <= PIECE
