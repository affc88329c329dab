"""Runs a program of this directory as a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tools.home import CHECKOUT


@contextmanager
def running_program(name: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the program of this name, until the block ends."""
    process = subprocess.Popen([sys.executable, "-m", f"tests.programs.{name}", *arguments], cwd=CHECKOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
