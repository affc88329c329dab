"""Descriptors 0 to 2 of a process that was started without some of them."""

import os
import sys


def open_standard_streams() -> None:
    """Open closed descriptors 0 to 2 on /dev/null; otherwise a file or socket would get the number, and the output."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
