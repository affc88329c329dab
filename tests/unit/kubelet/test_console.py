"""The executable's own lines where no process reads them."""

import fcntl
import os
import subprocess
import sys

import pytest

from tests.support.waits.deadline import WAIT_SECONDS

_PRINT = (
    "from services.kubelet import console as c; c._WRITE_SECONDS = 0.1; o = c.Console(1); [o.failed('x') for _ in '12']"
)


def _full_pipe() -> tuple[int, int]:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    os.write(write, b"x" * 4096)
    return read, write


def _broken_pipe() -> tuple[int, int]:
    read, write = os.pipe()
    os.close(read)
    return write, write


@pytest.mark.long
@pytest.mark.parametrize("make", [_full_pipe, _broken_pipe, lambda: (os.open("/dev/full", os.O_WRONLY),) * 2])
def test_a_missing_reader_is_no_reason_to_stop_or_to_fail(make: object) -> None:
    opened = make()  # type: ignore[operator]
    try:
        subprocess.run([sys.executable, "-c", _PRINT], stderr=opened[1], check=True, timeout=WAIT_SECONDS)
    finally:
        for fd in set(opened):
            os.close(fd)
