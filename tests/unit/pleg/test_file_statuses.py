"""Every file of a tree is found once, whatever its depth and whatever moves meanwhile."""

import itertools
import os
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.pleg.adapters import file_statuses
from services.pleg.adapters.file_statuses import MAX_ASIDE_PARTS, FileStatuses, Places
from tests.unit.pleg.counted import Chain, disk_usage

LONG = "d" * 250
LEVELS = 40  # 10000 bytes of path, where a system call takes 4096


def inodes(root: Path) -> list[int]:
    return sorted(found.st_ino for found in FileStatuses(root, Places(MAX_ASIDE_PARTS)))


def descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def below(root: Path) -> list[int]:
    return sorted([root.stat().st_ino, *(path.lstat().st_ino for path in root.rglob("*"))])


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A directory with a file of 1 MiB deeper than a path can name."""
    root = tmp_path / "root"
    root.mkdir()
    directory = os.open(root, os.O_RDONLY)
    for _ in range(LEVELS):
        os.mkdir(LONG, dir_fd=directory)
        inner = os.open(LONG, os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = inner
    file = os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=directory)
    os.write(file, bytes(1 << 20))
    os.close(file)
    os.close(directory)
    (root / "z").touch()
    yield root
    shutil.rmtree(root)


def test_what_is_too_deep_for_a_path_is_counted(deep: Path) -> None:
    use = disk_usage(deep)
    assert use.inodes == 1 + LEVELS + 2
    assert use.used >= 1 << 20


def test_a_deep_tree_takes_few_descriptors_and_leaves_none_open(deep: Path) -> None:
    before = descriptors()
    most = max(descriptors() for _ in FileStatuses(deep, Places(MAX_ASIDE_PARTS)))
    assert most <= before + 2
    (begun := FileStatuses(deep, Places(MAX_ASIDE_PARTS))).__next__()
    begun.close()
    assert descriptors() == before


def test_wide_and_narrow_directories_are_read_to_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_statuses, "PIECE_ENTRIES", 10)
    for number in range(35):
        (tmp_path / f"a{number}/b/c").mkdir(parents=True)
        (tmp_path / f"a{number}/b/file").touch()
    (tmp_path / "link").symlink_to("/")
    (tmp_path / "dangling").symlink_to("nowhere")
    assert inodes(tmp_path) == below(tmp_path)


@pytest.mark.parametrize("end", ["moved", "removed"])
def test_a_directory_that_goes_while_it_is_read_costs_no_other_one(tmp_path: Path, end: str) -> None:
    root, away = tmp_path / "root", tmp_path / "away"
    for name in ("a", "b", "c"):
        (root / "top" / name / "inner").mkdir(parents=True)
        (root / "top" / name / "inner/file").touch()
    found: dict[int, None] = {}
    gone = ""
    for status in FileStatuses(root, Places(MAX_ASIDE_PARTS)):
        found[status.st_ino] = None
        for name in ("a", "b", "c"):
            inner = root / "top" / name / "inner"
            if not gone and inner.exists() and status.st_ino == inner.stat().st_ino:  # the walk is inside now
                gone = name
                inner.rename(away) if end == "moved" else shutil.rmtree(root / "top" / name)
    assert gone
    assert set(below(root)) <= found.keys()


def test_a_root_that_goes_while_it_is_read_ends_the_walk(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a/b/c").mkdir(parents=True)
    inner = (root / "a/b/c").stat().st_ino
    for status in FileStatuses(root, Places(MAX_ASIDE_PARTS)):
        if status.st_ino == inner:
            (root / "a/b").rename(tmp_path / "b")
            root.rename(tmp_path / "elsewhere")
    assert disk_usage(root).inodes == 0
    assert list(FileStatuses(root / "none", Places(MAX_ASIDE_PARTS))) == []


@pytest.mark.long
def test_directories_that_grow_as_fast_as_they_are_read_hide_nothing_that_is_beside_them(tmp_path: Path) -> None:
    files, chains = set(), []
    for name in "abcd":
        (hidden := tmp_path / name / "x/y").mkdir(parents=True)
        (hidden / "file").touch()
        files.add((hidden / "file").stat().st_ino)
        chains += [Chain(tmp_path / name), Chain(hidden)]
    walk, found = FileStatuses(tmp_path, Places(MAX_ASIDE_PARTS)), []
    for _ in range(4 * len(chains)):
        for chain in chains:
            chain.extend(11)
        found += [status.st_ino for status in itertools.islice(walk, 10)]
        walk.turn()
    assert files <= set(found)
    while more := [status.st_ino for status in itertools.islice(walk, 100)]:
        found += more
        walk.turn()
    assert sorted(found) == below(tmp_path)
    for chain in chains:
        chain.close()


def test_the_parts_of_a_tree_that_are_left_for_later_are_few_and_cost_a_descriptor_each(tmp_path: Path) -> None:
    for number in range(5 * MAX_ASIDE_PARTS):
        (tmp_path / f"{number}/b/c").mkdir(parents=True)
    before, most, found = descriptors(), 0, []
    walk = FileStatuses(tmp_path, Places(MAX_ASIDE_PARTS))
    for status in walk:
        found.append(status.st_ino)
        walk.turn()
        most = max(most, descriptors())
    assert before < most <= before + MAX_ASIDE_PARTS + 2 and descriptors() == before
    assert sorted(found) == below(tmp_path)


@pytest.mark.long
def test_the_trees_of_a_pod_share_the_places_for_parts_that_are_left_for_later(tmp_path: Path) -> None:
    for tree, number in itertools.product("abc", range(2 * MAX_ASIDE_PARTS)):
        (tmp_path / tree / f"{number}/b/c").mkdir(parents=True)
    places, before, most = Places(MAX_ASIDE_PARTS), descriptors(), 0
    for _ in range(2):  # the places are free again afterwards
        walks, most = [FileStatuses(tmp_path / tree, places) for tree in "abc"], 0
        for _ in zip(*walks, strict=True):
            for walk in walks:
                walk.turn()
            most = max(most, descriptors())
        assert before + MAX_ASIDE_PARTS <= most <= before + MAX_ASIDE_PARTS + 2 * len(walks)
        assert (descriptors(), places.free) == (before, MAX_ASIDE_PARTS)


@pytest.mark.long
def test_a_level_of_a_deep_tree_takes_little_memory(tmp_path: Path) -> None:
    (chain := Chain(tmp_path)).extend(levels := 500)
    chain.close()
    tracemalloc.start()
    for _ in (walk := FileStatuses(tmp_path, Places(MAX_ASIDE_PARTS))):
        pass
    walk.close()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most / levels < 400
