"""The copy of the log never waits for its reader, cuts no line, and goes quietly."""

import fcntl
import os
import socket
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.log.log_copy import _MAX_WAITING_BYTES, CopyTarget, StreamCopy, adopt_stream

DEADLINE = 60.0


def lost(count: int) -> bytes:
    return b"%d lost\n" % count


def is_blocking(fd: int) -> bool:
    return not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK


def read_all(fd: int, length: int) -> bytes:
    """As many bytes as are sure to come."""
    found = b""
    while len(found) < length and (more := os.read(fd, 65536)):
        found += more
    return found


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(writer)
    os.close(reader)


def test_lines_reach_a_pipe_and_its_flags_stay(pipe: tuple[int, int]) -> None:
    os.set_inheritable(pipe[1], True)
    copy = StreamCopy(CopyTarget(pipe[1]), lost)
    copy.put([b"one\n"])
    copy.put([b"two\n", b"\tand more\n"])
    copy.finish(DEADLINE)
    assert os.read(pipe[0], 100) == b"one\ntwo\n\tand more\n"
    assert is_blocking(pipe[1])
    assert not os.get_inheritable(pipe[1])


def test_a_reader_that_does_not_read_loses_lines_and_gets_their_number(pipe: tuple[int, int]) -> None:
    copy = StreamCopy(CopyTarget(pipe[1]), lost)
    line = b"x" * 999 + b"\n"
    for _ in range(1000):
        copy.put([line])
    assert 500 < copy.dropped < 1000
    missing = copy.dropped
    written = read_all(pipe[0], (1000 - missing) * 1000)
    copy.put([b"again\n"])
    assert read_all(pipe[0], len(b"%d lost\nagain\n" % missing)) == b"%d lost\nagain\n" % missing
    assert written == line * (1000 - missing)
    copy.finish(DEADLINE)


def test_dropping_goes_on_until_half_of_what_waits_is_read(tmp_path: Path) -> None:
    """Else a slow reader would find a line about lost ones between any two."""
    fd = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    copy = StreamCopy(CopyTarget(fd), lost)
    copy.hold(1 << 20, 3600)
    kept = b"x" * ((1 << 20) - 2) + b"\n"
    copy.put([kept])  # one byte less than what is written at once
    for size in (_MAX_WAITING_BYTES + 2, 10, 1):
        copy.put([b"y" * size])
    assert copy.dropped == 3
    copy.finish(DEADLINE)
    assert (tmp_path / "out").read_bytes() == kept
    os.close(fd)


@pytest.mark.parametrize("size", [1, 3000, 4096])
def test_pieces_are_written_together_or_not_at_all(pipe: tuple[int, int], size: int) -> None:
    """What another process writes at the same time comes between pieces only."""
    fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, 4096)
    copy = StreamCopy(CopyTarget(pipe[1]), lost)
    for number in range(20):
        copy.put([bytes([65 + number]) * (size - 1) + b"\n"])
    found = b""
    while len(found) < 20 * size:
        more = os.read(pipe[0], 1 << 20)
        assert more.endswith(b"\n") and len(more) % size == 0
        found += more
    copy.finish(DEADLINE)
    assert found == b"".join(bytes([65 + number]) * (size - 1) + b"\n" for number in range(20))


def test_a_reader_that_has_gone_is_given_up() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    copy = StreamCopy(CopyTarget(writer), lost)
    copy.put([b"x\n"])
    copy.finish(DEADLINE)
    assert copy.given_up
    copy.put([b"y\n"])
    os.close(writer)


def test_a_descriptor_that_is_closed_later_is_given_up(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    copy = StreamCopy(CopyTarget(fd), lost)
    os.close(fd)
    copy.put([b"x\n"])
    copy.finish(DEADLINE)
    assert copy.given_up


@pytest.mark.parametrize("number", ["", "x", "2", "0", "-1", "1000000", str(2**80), "1 2"])
def test_a_number_that_names_no_descriptor_is_no_copy(number: str) -> None:
    assert adopt_stream(number, lost) is None


def test_a_file_is_shared_with_its_other_writers(tmp_path: Path) -> None:
    """Opened again it would have a place of its own to write at, over what others wrote."""
    fd = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"before\n")
    copy = adopt_stream(str(fd), lost)
    assert copy and copy.limit > 10**6
    copy.put([b"x" * 9999 + b"\n"])
    copy.finish(DEADLINE)
    os.write(fd, b"after\n")
    assert (tmp_path / "out").read_bytes() == b"before\n" + b"x" * 9999 + b"\nafter\n"
    os.close(fd)


def test_a_full_device_costs_lines_only() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    copy = StreamCopy(CopyTarget(fd), lost)
    copy.put([b"x\n", b"\ty\n"])
    copy.finish(DEADLINE)
    assert copy.dropped == 2 and not copy.given_up
    os.close(fd)


def test_a_line_the_disk_cut_short_is_ended_before_the_next() -> None:
    class Disk(CopyTarget):
        def __init__(self) -> None:
            self.limit, self.content, self.room = 100, b"", 5

        def write(self, data: bytes) -> int:
            if not self.room:
                self.room = 100
                raise OSError(28, "full")
            taken = data[: self.room]
            self.room -= len(taken)
            self.content += taken
            return len(taken)

    disk = Disk()
    copy = StreamCopy(disk, lost)
    copy._write(b"one\ntwo\n")
    copy._write(b"three\n")
    assert disk.content == b"one\nt\nthree\n"
    assert copy.dropped == 1


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_socket_as_of_the_journal_never_waits(kind: int) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    with ours, theirs:
        copy = StreamCopy(CopyTarget(ours.fileno()), lost)
        line = b"x" * 999 + b"\n"
        while not copy.dropped:  # soon: no process reads
            copy.put([line])
        assert is_blocking(ours.fileno())
        theirs.settimeout(DEADLINE)
        assert theirs.recv(1000) == line
        theirs.close()
        copy.finish(DEADLINE)
        assert copy.given_up


def test_a_stopped_terminal_costs_lines_and_keeps_its_flags() -> None:
    master, slave = os.openpty()
    termios.tcflow(slave, termios.TCOOFF)  # as ^S does
    copy = StreamCopy(CopyTarget(slave), lost)
    for _ in range(1000):
        copy.put([b"x" * 999 + b"\n"])
    assert copy.dropped > 500
    assert is_blocking(slave)
    termios.tcflow(slave, termios.TCOON)
    assert read_all(master, 1001)[:1001] == b"x" * 999 + b"\r\n"
    os.close(master)
    copy.finish(DEADLINE)
    assert copy.given_up
    os.close(slave)


def test_held_lines_wait_for_the_buffer_or_the_end(pipe: tuple[int, int]) -> None:
    copy = StreamCopy(CopyTarget(pipe[1]), lost)
    copy.hold(10, 3600)
    copy.put([b"1234\n"])
    os.set_blocking(pipe[0], False)
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 100)
    os.set_blocking(pipe[0], True)
    copy.put([b"6789\n"])
    assert read_all(pipe[0], 10) == b"1234\n6789\n"
    copy.put([b"end\n"])
    copy.finish(DEADLINE)
    assert os.read(pipe[0], 100) == b"end\n"


def test_held_lines_wait_no_longer_than_requested(pipe: tuple[int, int]) -> None:
    copy = StreamCopy(CopyTarget(pipe[1]), lost)
    copy.hold(1 << 20, 0.01)
    copy.put([b"soon\n"])
    assert read_all(pipe[0], 5) == b"soon\n"
    copy.finish(DEADLINE)


def test_an_outlet_that_cannot_be_opened_again_polls_before_it_writes(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", _refuse)
        outlet = CopyTarget(pipe[1])
    with pytest.raises(BlockingIOError):
        while True:
            outlet.write(b"x" * 4096)
    os.read(pipe[0], 4096)
    assert outlet.write(b"x" * 4096) == 4096


def _refuse(*_: object) -> int:
    raise PermissionError
