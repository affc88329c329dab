"""The atomic writer on a real directory: content, modes, symlinks, and a kill at any step."""

import errno
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.volume.adapters import atomic_writer
from services.volume.adapters.atomic_writer import KEPT_SECONDS, AtomicWriter
from services.volume.core.files.payload import ContentError, PayloadFile
from tests.unit.examples import examples

WALL = 1_738_318_830.0  # 2025-01-31T10:20:30Z
LATER = itertools.count(WALL, 2 * KEPT_SECONDS)  # of each write: what the one before it has replaced is not kept


def payload(mode: int = 0o644, **content: str) -> dict[str, PayloadFile]:
    return {path.replace("__", "/"): PayloadFile(text.encode(), mode) for path, text in content.items()}


def readable(volume: Path) -> dict[str, str]:
    """Every file that can be opened through the links at the top, as a container would."""
    found: dict[str, str] = {}
    for top in sorted(entry for entry in volume.iterdir() if not entry.name.startswith("..")):
        files = [Path(place) / name for place, _, names in os.walk(top) for name in names] if top.is_dir() else [top]
        found |= {str(file.relative_to(volume)): file.read_text() for file in files if file.exists()}
    return found


def hidden(volume: Path) -> list[str]:
    return sorted(entry.name for entry in volume.iterdir() if entry.name.startswith(".."))


def generations(volume: Path) -> list[str]:
    return [name for name in hidden(volume) if name != "..data"]


def write(volume: Path, files: dict[str, PayloadFile], wall: float | None = None) -> bool:
    return AtomicWriter(volume).write(files, wall=next(LATER) if wall is None else wall)


@pytest.fixture(autouse=True)
def narrow_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_the_layout_is_the_kubelets(tmp_path: Path) -> None:
    assert write(tmp_path, payload(a="1", sub__b="2", sub__deep__c="3"), WALL)
    data, generation = hidden(tmp_path)[::-1]
    assert data == "..data"
    assert (tmp_path / data).readlink() == Path(generation)
    assert generation.startswith("..2025_01_31_10_20_30.")
    assert {name: str((tmp_path / name).readlink()) for name in ("a", "sub")} == {"a": "..data/a", "sub": "..data/sub"}
    assert readable(tmp_path) == {"a": "1", "sub/b": "2", "sub/deep/c": "3"}
    modes = [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in (generation, "sub", "sub/deep", "a")]
    assert modes == [0o755, 0o755, 0o755, 0o644]


def test_exact_modes_and_owners(tmp_path: Path) -> None:
    write(tmp_path, {"x": PayloadFile(b"", 0o440), "y": PayloadFile(b"", 0o777, os.getuid())})
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "xy"] == [0o440, 0o777]


def test_nothing_is_written_when_nothing_differs(tmp_path: Path) -> None:
    write(tmp_path, payload(a="1", sub__b="2"))
    before = {entry.name: entry.lstat().st_mtime_ns for entry in tmp_path.iterdir()}
    assert not write(tmp_path, payload(0o600, a="1", sub__b="2"))
    assert {entry.name: entry.lstat().st_mtime_ns for entry in tmp_path.iterdir()} == before


@pytest.mark.parametrize("new", [{"a": "2"}, {"b": "1"}, {"a": "1", "b": "1"}, {}, {"a__b": "1"}])
def test_old_files_and_links_go(tmp_path: Path, new: dict[str, str]) -> None:
    write(tmp_path, payload(a="1"))
    assert write(tmp_path, {path.replace("__", "/"): PayloadFile(text.encode(), 0o644) for path, text in new.items()})
    assert readable(tmp_path) == {path.replace("__", "/"): text for path, text in new.items()}
    AtomicWriter(tmp_path).remove_old_files(wall=next(LATER))
    assert len(hidden(tmp_path)) == 2
    assert {entry.name for entry in tmp_path.iterdir() if not entry.name.startswith("..")} == {
        path.partition("__")[0] for path in new
    }


def test_a_bad_path_or_two_files_in_one_place_leave_the_old_content(tmp_path: Path) -> None:
    write(tmp_path, payload(a="1"))
    with pytest.raises(ContentError):
        write(tmp_path, {"../x": PayloadFile(b"", 0o644)})
    with pytest.raises(OSError, match=r"exists|directory"):
        write(tmp_path, payload(b="1", b__c="2"))
    assert readable(tmp_path) == {"a": "1"}
    assert len(hidden(tmp_path)) == 2


def test_a_reader_between_the_link_and_the_file_finds_the_old_files(tmp_path: Path) -> None:
    write(tmp_path, payload(a="1"), WALL)
    resolved = tmp_path / (tmp_path / "..data").readlink() / "a"
    for number in range(2, 8):
        write(tmp_path, payload(a=str(number)), WALL + number / 10)
    assert resolved.read_text() == "1"
    assert AtomicWriter(tmp_path).has_old_files
    AtomicWriter(tmp_path).remove_old_files(wall=WALL + 0.2 + KEPT_SECONDS)
    assert not resolved.exists()
    AtomicWriter(tmp_path).remove_old_files(wall=WALL + 0.7 + KEPT_SECONDS)
    assert not AtomicWriter(tmp_path).has_old_files
    assert readable(tmp_path) == {"a": "7"}


def test_a_write_that_changes_nothing_removes_what_was_replaced_long_ago(tmp_path: Path) -> None:
    for text in "12":
        write(tmp_path, payload(a=text), WALL)
    assert len(generations(tmp_path)) == 2
    assert not write(tmp_path, payload(a="2"), WALL + KEPT_SECONDS)
    assert len(generations(tmp_path)) == 1


def test_a_clock_that_is_set_back_keeps_no_old_files(tmp_path: Path) -> None:
    for text in "12":
        write(tmp_path, payload(a=text), WALL)
    AtomicWriter(tmp_path).remove_old_files(wall=WALL - 3600)
    assert not AtomicWriter(tmp_path).has_old_files


@pytest.mark.long
@pytest.mark.parametrize(("size", "kept"), [(1, 100), (1 << 20, 8), (32 << 20, 1)])
def test_old_files_are_bounded_in_number_and_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, kept: int
) -> None:
    monkeypatch.setattr(AtomicWriter, "_fill", lambda *_: None)  # the sizes count, not the disk
    monkeypatch.setattr(atomic_writer, "_same", lambda *_: False)
    for number in range(kept + 3):
        write(tmp_path, {"a": PayloadFile(b"a" * size, 0o644)}, WALL + number / 1000)
    assert len(generations(tmp_path)) == kept + 1


def test_old_files_make_room_for_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill = AtomicWriter._fill

    def fill_a_small_disk(writer: AtomicWriter, new: Path, files: dict[str, PayloadFile]) -> None:
        if len(generations(tmp_path)) > 2:
            raise OSError(errno.ENOSPC, "no space")
        fill(writer, new, files)

    monkeypatch.setattr(AtomicWriter, "_fill", fill_a_small_disk)
    for text in "1234":
        assert write(tmp_path, payload(a=text), WALL)
    assert readable(tmp_path) == {"a": "4"}
    assert len(generations(tmp_path)) == 2


def test_what_others_put_there_stays(tmp_path: Path) -> None:
    (tmp_path / "nested").mkdir()
    (tmp_path / "..own").mkdir()
    write(tmp_path, payload(a="1"))
    write(tmp_path, payload(b="1"))
    assert (tmp_path / "nested").is_dir()
    assert (tmp_path / "..own").is_dir()


@pytest.mark.parametrize("broken", ["link", "content", "data"])
def test_what_another_process_broke_is_repaired(tmp_path: Path, broken: str) -> None:
    write(tmp_path, payload(a="1"))
    if broken == "link":
        (tmp_path / "a").unlink()
    elif broken == "content":
        (tmp_path / "a").write_text("x")
    else:
        (tmp_path / "..data").unlink()
    write(tmp_path, payload(a="1"))
    assert readable(tmp_path) == {"a": "1"}
    AtomicWriter(tmp_path).remove_old_files(wall=next(LATER))
    assert len(hidden(tmp_path)) == 2


class Killed(BaseException):
    """The process is no more."""


NAMES = st.sampled_from(["a", "b", "c", "d/e", "d/f", "g/h/i"])
PAYLOADS = st.dictionaries(NAMES, st.sampled_from(["1", "2", "33"]), max_size=5)


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(st.tuples(PAYLOADS, st.integers(0, 14)), min_size=1, max_size=5), PAYLOADS)
def test_killed_anywhere_it_shows_old_or_new_and_the_next_run_cleans_up(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[dict[str, str], int]], last: dict[str, str]
) -> None:
    volume = tmp_path_factory.mktemp("volume")
    shown: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch:
        for wanted, steps in runs:
            left = iter(range(steps, -1, -1))

            def step(_: str, left: Iterator[int] = left) -> None:
                seen = readable(volume)
                assert seen in (shown, wanted)  # noqa: B023
                if next(left, 0) == 0:
                    raise Killed

            patch.setattr(atomic_writer, "crash_point", step)
            try:
                write(volume, {path: PayloadFile(text.encode(), 0o644) for path, text in wanted.items()})
            except Killed:
                pass
            else:
                assert readable(volume) == wanted
            assert readable(volume) in (shown, wanted)
            shown = readable(volume)
        patch.setattr(atomic_writer, "crash_point", lambda _: None)
        write(volume, {path: PayloadFile(text.encode(), 0o644) for path, text in last.items()})
        AtomicWriter(volume).remove_old_files(wall=next(LATER))
    assert readable(volume) == last
    assert len(hidden(volume)) == 2
    assert {p.name for p in volume.iterdir()} - set(hidden(volume)) == {path.partition("/")[0] for path in last}
