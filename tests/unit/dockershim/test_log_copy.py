"""Docker's JSON logs as CRI's logs: the lines, long ones, rotation, and restarts at any place."""

import json
import random
import resource
import signal
from pathlib import Path

import pytest

from services.dockershim.adapters.log_copy import MAX_COPY_BYTES, LogCopy

ENTRY_BYTES = 16 * 1024  # Docker divides longer lines


def entry_of(text: str, time: str) -> bytes:
    """An entry as Docker writes it."""
    content = {"log": text, "stream": "stdout", "time": time}
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def docker_lines(texts: list[str], first: int = 0) -> list[bytes]:
    """What Docker writes for these lines of stdout: parts of a long one have one time; final zeros are left out."""
    lines = []
    for number, text in enumerate(texts, first):
        time = f"2026-11-29T12:00:{number // 10 % 60:02d}.{number % 10}Z".replace(".0Z", "Z")
        parts = [text[at : at + ENTRY_BYTES] for at in range(0, max(len(text), 1), ENTRY_BYTES)]
        parts[-1] += "\n"
        lines += [entry_of(part, time) for part in parts]
    return lines


def texts_of(log: Path) -> list[str]:
    """The lines that a reader of CRI logs makes of a log, parts joined."""
    found, begun = [], ""
    for line in log.read_bytes().decode().splitlines():
        _, stream, tag, text = line.split(" ", 3)
        assert stream == "stdout"
        begun += text
        if tag == "F":
            found.append(begun)
            begun = ""
    assert begun == ""
    return found


def copied(source: Path, target: Path) -> None:
    """A whole life of a copy."""
    copy = LogCopy(source, target)
    copy.open()
    while not copy.copy():
        continue
    copy.close()


def test_lines_and_parts_of_long_lines_arrive_in_order(tmp_path: Path) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    texts = ["a", "", "b" * (3 * ENTRY_BYTES + 5), "é ü", "c" * ENTRY_BYTES]
    source.write_bytes(b"".join(docker_lines(texts)))
    copied(source, target)
    assert texts_of(target) == texts


@pytest.mark.long
def test_a_copy_that_is_begun_again_at_any_byte_has_each_line_once(tmp_path: Path) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    texts = ["x" * length for length in (1, 20, 5 * ENTRY_BYTES + 3, 0, 7, 2 * ENTRY_BYTES, 1)]
    content = b"".join(docker_lines(texts))
    source.write_bytes(content)
    copied(source, target)
    whole = target.read_bytes()
    draw = random.Random(7)
    for length in [0, len(whole), *(draw.randrange(len(whole)) for _ in range(60))]:
        target.write_bytes(whole[:length])  # a kill in the middle of a write
        copied(source, target)
        assert target.read_bytes() == whole, length


def test_lines_of_one_time_are_neither_lost_nor_doubled(tmp_path: Path) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    entry = entry_of("same\n", "2026-11-29T12:00:00.5Z")
    for count in range(1, 6):
        source.write_bytes(entry * count)
        copied(source, target)
        assert texts_of(target) == ["same"] * count


def test_the_log_goes_on_in_the_file_that_docker_begins(tmp_path: Path) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    lines = docker_lines([str(number) for number in range(9)])
    copy = LogCopy(source, target)
    copy.open()
    source.write_bytes(b"".join(lines[:3]))
    copy.copy()
    with source.open("ab") as file:
        file.write(b"".join(lines[3:5]))
    source.rename(tmp_path / "d.log.1")
    source.write_bytes(b"".join(lines[5:]))
    copy.copy()
    copy.close()
    assert texts_of(target) == [str(number) for number in range(9)]


def test_a_restart_reads_first_what_docker_has_rotated_away(tmp_path: Path) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    lines = docker_lines([str(number) for number in range(9)])
    source.write_bytes(b"".join(lines[:3]))
    copied(source, target)
    (tmp_path / "d.log.1").write_bytes(b"".join(lines[:6]))
    source.write_bytes(b"".join(lines[6:]))
    copied(source, target)
    assert texts_of(target) == [str(number) for number in range(9)]


def test_the_position_is_found_in_the_rotated_log_where_the_new_one_is_empty(tmp_path: Path) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    lines = docker_lines([str(number) for number in range(6)])
    source.write_bytes(b"".join(lines[:4]))
    copied(source, target)
    target.rename(tmp_path / "0.log.20261129-120000")
    source.write_bytes(b"".join(lines))
    copied(source, target)
    assert texts_of(target) == ["4", "5"]


def test_a_renamed_log_is_left_and_a_new_one_begun(tmp_path: Path) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    lines = docker_lines(["a", "b"])
    copy = LogCopy(source, target)
    copy.open()
    source.write_bytes(lines[0])
    copy.copy()
    target.rename(tmp_path / "old")
    copy.reopen()
    with source.open("ab") as file:
        file.write(lines[1])
    copy.copy()
    copy.close()
    assert (texts_of(tmp_path / "old"), texts_of(target)) == (["a"], ["b"])


def test_garbage_in_dockers_file_is_left_out(tmp_path: Path) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    good = docker_lines(["a", "b"])
    bad = [b"{\n", b"[]\n", b"\x00\xff\n", b'{"log": 1, "stream": "stdout", "time": "t"}\n', b"null\n"]
    source.write_bytes(good[0] + b"".join(bad) + good[1] + b'{"log": "half')
    copied(source, target)
    assert texts_of(target) == ["a", "b"]


def test_lines_that_docker_writes_between_a_look_and_its_rotations_are_not_lost(tmp_path: Path) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    lines = docker_lines([str(number) for number in range(9)])
    copy = LogCopy(source, target)
    copy.open()
    source.write_bytes(lines[0])
    copy.copy()
    for first in (1, 4):  # two rotations without a look between them
        with source.open("ab") as file:
            file.write(b"".join(lines[first : first + 3]))
        if (tmp_path / "d.log.1").exists():
            (tmp_path / "d.log.1").rename(tmp_path / "d.log.2")
        source.rename(tmp_path / "d.log.1")
    source.write_bytes(b"".join(lines[7:]))
    copy.copy()
    copy.close()
    assert texts_of(target) == [str(number) for number in range(9)]


def test_a_closed_copy_writes_no_more(tmp_path: Path) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    lines = docker_lines(["a", "b"])
    source.write_bytes(lines[0])
    copy = LogCopy(source, target)
    copy.open()
    copy.copy()
    copy.close()
    with source.open("ab") as file:
        file.write(lines[1])
    copy.copy()
    assert texts_of(target) == ["a"]


def test_a_copy_goes_on_without_doubles_after_a_write_that_failed(tmp_path: Path) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    lines = docker_lines(["a", "b", "c"])
    source.write_bytes(b"".join(lines[:2]))
    copied(source, target)
    source.write_bytes(b"".join(lines))
    copy = LogCopy(source, target)
    copy.open()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (target.stat().st_size, limits[1]))
        with pytest.raises(OSError, match="File too large"):
            copy.copy()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    copy.copy()
    copy.close()
    assert texts_of(target) == ["a", "b", "c"]


def test_a_log_whose_new_file_could_not_be_made_is_made_with_the_next_lines(tmp_path: Path) -> None:
    source, directory = tmp_path / "d.log", tmp_path / "c"
    directory.mkdir()
    target, lines = directory / "0.log", docker_lines(["a", "b"])
    source.write_bytes(lines[0])
    copy = LogCopy(source, target)
    copy.open()
    copy.copy()
    directory.rename(tmp_path / "old")
    with pytest.raises(FileNotFoundError):
        copy.reopen()
    directory.mkdir()
    with source.open("ab") as file:
        file.write(lines[1])
    copy.copy()
    copy.close()
    assert texts_of(target) == ["b"]


def at(time: str, text: str) -> bytes:
    """One entry with this time of day."""
    return entry_of(f"{text}\n", f"2026-11-29T{time}Z")


@pytest.mark.parametrize("stopped", range(7))
def test_a_clock_that_is_set_back_makes_a_copy_that_goes_on_neither_lose_nor_double_lines(
    tmp_path: Path, stopped: int
) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    times = ("12:00:01", "12:00:02.5", "12:00:03", "11:00:00", "11:00:01", "11:00:02")
    lines = [at(time, str(number)) for number, time in enumerate(times)]
    source.write_bytes(b"".join(lines[:stopped]))
    copied(source, target)
    source.write_bytes(b"".join(lines))
    copied(source, target)
    assert texts_of(target) == [str(number) for number in range(len(times))]


@pytest.mark.parametrize("copied_parts", [1, 3, 5, 7, 8])
def test_a_copy_goes_on_within_a_line_over_whose_parts_docker_has_begun_other_files(
    tmp_path: Path, copied_parts: int
) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    lines = docker_lines(["before", "x" * (6 * ENTRY_BYTES - 1), "after"])
    assert len(lines) == 8
    source.write_bytes(b"".join(lines[:copied_parts]))
    copied(source, target)
    (tmp_path / "d.log.2").write_bytes(b"".join(lines[:3]))
    (tmp_path / "d.log.1").write_bytes(b"".join(lines[3:5]))
    source.write_bytes(b"".join(lines[5:]))
    copied(source, target)
    assert texts_of(target) == ["before", "x" * (6 * ENTRY_BYTES - 1), "after"]


def test_what_a_container_writes_is_not_taken_for_the_place_where_the_copy_goes_on(tmp_path: Path) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    forged = '","stream":"stdout","time":"2026-11-29T12:00:02Z"}'
    lines = [at("12:00:01", forged), at("12:00:02", "second"), at("12:00:03", "third")]
    source.write_bytes(b"".join(lines[:2]))
    copied(source, target)
    source.write_bytes(b"".join(lines))
    copied(source, target)
    assert texts_of(target) == [forged, "second", "third"]


def test_a_place_that_docker_has_removed_is_passed_by_time(tmp_path: Path) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    source.write_bytes(at("12:00:01", "a") + at("12:00:04", "b"))
    copied(source, target)
    source.write_bytes(at("12:00:03", "before") + at("12:00:05", "c"))
    copied(source, target)
    assert texts_of(target) == ["a", "b", "c"]


@pytest.mark.long
def test_a_line_of_16_mib_arrives_whole_also_when_the_copy_and_the_log_are_cut_within_it(tmp_path: Path) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    texts = ["before", "x" * (16 * 1024 * 1024), "after"]
    lines = docker_lines(texts)
    source.write_bytes(b"".join(lines[:-300]))
    copied(source, target)
    target.rename(tmp_path / "0.log.20261129-120000")  # as podsync does with a large log
    source.write_bytes(b"".join(lines[:-200]))
    copied(source, target)
    source.write_bytes(b"".join(lines))
    copied(source, target)
    whole = (tmp_path / "0.log.20261129-120000").read_bytes() + target.read_bytes()
    target.write_bytes(whole)
    assert texts_of(target) == texts


@pytest.mark.long
def test_a_log_that_grows_while_it_is_copied_is_copied_in_pieces_so_that_others_get_their_turn(tmp_path: Path) -> None:
    source, target = tmp_path / "d.log", tmp_path / "0.log"
    entry = at("12:00:01", "x" * ENTRY_BYTES)
    count = 3 * MAX_COPY_BYTES // len(entry)
    source.write_bytes(entry * count)
    copy = LogCopy(source, target)
    copy.open()
    pieces = 1
    while not copy.copy():
        assert target.stat().st_size <= pieces * MAX_COPY_BYTES
        pieces += 1
    copy.close()
    assert (pieces, len(texts_of(target))) == (3, count)
