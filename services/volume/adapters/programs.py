"""Runs programs of the node such as mount and mkfs; blocking. One that does not end in time is killed and left."""

import errno
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

_LONGEST_OUTPUT = 1000  # characters of its output that an error shows
_SECONDS = 110.0


@dataclass(frozen=True)
class Finished:
    """How a program ended: its exit status, and standard output and error together."""

    code: int
    output: str


def run(*command: str, seconds: float = _SECONDS, keep_open: Sequence[int] = ()) -> Finished:
    """Run a program found in PATH. `keep_open`: descriptors that it inherits. Raises OSError with a one-line text where
    it is missing or takes longer than `seconds`."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            pass_fds=tuple(keep_open), text=True, errors="replace",
        )  # fmt: skip
    except FileNotFoundError as error:
        raise OSError(errno.ENOENT, f"{command[0]} is not installed on this node") from error
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        process.kill()  # not waited for: a program inside a system call on a dead server does not end
        raise OSError(errno.ETIMEDOUT, f"{command[0]} did not end within {seconds:g} s") from error
    return Finished(process.returncode, " ".join(output.split())[:_LONGEST_OUTPUT])
