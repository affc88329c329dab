"""Runs programs of the node such as mount and mkfs; blocking. A program that does not end in time is killed.

A program may outlive the process that began it. So what must not run beside it first looks for such a program, or for a
lock that the program inherits.
"""

import contextlib
import errno
import fcntl
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from msgspec import Struct

_MAX_OUTPUT_CHARACTERS = 1000  # of a program's output that an error shows
_MAX_OUTPUT_BYTES = 64 << 10  # that are kept; a server may have a program write without end
_TIMEOUT_SECONDS = 110.0
_KILLED_WITHIN_SECONDS = 5.0  # a program inside a system call on a dead server does not end at once
_PID_NAMESPACE = Path("/proc/self/ns/pid")


class ProgramResult(Struct, frozen=True):
    """How a program ended: its exit status, and the beginning of standard output and error together."""

    code: int
    output: str


def run(
    *command: str,
    seconds: float = _TIMEOUT_SECONDS,
    keep_open: Sequence[int] = (),
    max_characters: int = _MAX_OUTPUT_CHARACTERS,
) -> ProgramResult:
    """Run a program found in PATH. `keep_open`: descriptors that it inherits; `max_characters`: of its output that are
    returned. Raises OSError with a one-line text where it is missing or takes longer than `seconds`."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=tuple(keep_open),
            bufsize=0,
        )
    except FileNotFoundError as error:
        raise OSError(errno.ENOENT, f"{command[0]} is not installed on this node") from error
    ends = time.monotonic() + seconds
    assert process.stdout is not None
    try:
        with process.stdout as pipe:
            output = _beginning(pipe, ends).decode(errors="replace")
        process.wait(max(0.0, ends - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        process.kill()  # its end is not awaited: a program inside a system call on a dead server does not end
        raise OSError(errno.ETIMEDOUT, f"{command[0]} did not end within {seconds:g} s") from error
    return ProgramResult(process.returncode, " ".join(output.split())[:max_characters])


def run_with_helpers(
    *command: str,
    seconds: float = _TIMEOUT_SECONDS,
    keep_open: Sequence[int] = (),
    max_characters: int = _MAX_OUTPUT_CHARACTERS,
) -> ProgramResult:
    """Run a program as `run` does; after `seconds` what it has begun is killed as well, also when this process has
    ended: a helper such as mount.nfs waits for a server that does not answer."""
    limit = ("timeout", "-s", "KILL", f"{seconds:g}")
    try:
        done = run(
            *limit,
            *command,
            seconds=seconds + _KILLED_WITHIN_SECONDS,
            keep_open=keep_open,
            max_characters=max_characters,
        )
    except TimeoutError:
        done = None
    if done is None or done.code == -signal.SIGKILL:
        raise OSError(errno.ETIMEDOUT, f"{command[0]} did not end within {seconds:g} s")
    return done


def _beginning(pipe: IO[bytes], ends: float) -> bytes:
    """Read until the pipe is closed, and return what it began with. Raises TimeoutError at the moment `ends`."""
    kept = bytearray()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while (left := ends - time.monotonic()) > 0:
        if poll.poll(left * 1000):
            piece = os.read(pipe.fileno(), _MAX_OUTPUT_BYTES)
            if not piece:
                return bytes(kept)
            kept += piece[: _MAX_OUTPUT_BYTES - len(kept)]
    raise TimeoutError


@contextmanager
def locked(path: str, busy: str) -> Iterator[int]:
    """Lock a file and yield its descriptor. Programs that inherit it (`keep_open` of `run`) hold the lock until they
    end. Raises OSError, with the text `busy` while another process has the lock."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OSError(errno.EBUSY, busy) from error
        yield descriptor
    finally:
        os.close(descriptor)


def running_on(path: Path, program: str) -> bool:
    """Return whether a program of this name, such as `umount`, or a helper such as `umount.nfs`, runs with the path as
    an argument; another process may have begun it. A process of a container does not count, whatever its name."""
    return _is_running((path,), lambda process: _name(process).partition(".")[0] == program)


def leads_session_on(argument: Path | str, executable: Path) -> bool:
    """Return whether this executable, which was begun in a session of its own, runs with the argument; another process
    may have begun it. What it has left running in the background does not count."""
    return _is_running((argument, executable), lambda process: os.getsid(int(process.name)) == int(process.name))


def _is_running(arguments: Iterable[Path | str], counts: Callable[[Path], bool]) -> bool:
    """Return whether a process outside of containers for which `counts(/proc/<pid>)` is true has these arguments."""
    ours, wanted = _PID_NAMESPACE.readlink(), {os.fsencode(argument) for argument in arguments}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if not counts(process) or (process / "ns" / "pid").readlink() != ours:
                continue
            # The arguments are read last, because those of a process that hangs may not be readable.
            if wanted.issubset((process / "cmdline").read_bytes().split(b"\0")):
                return True
    return False


def _name(process: Path) -> str:
    return (process / "comm").read_text(errors="replace").rstrip("\n")
