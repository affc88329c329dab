"""What the executable itself says: klog lines on the standard error, in the form the logs of the services have."""

import sys
import time
from pathlib import PurePath

from shared.klog import json_line, structured, text_body, text_header


class Console:
    """Writes at once. `process` is the id the lines carry; `json` and `split` as the configuration's `logging` says."""

    def __init__(self, process: int) -> None:
        self._process = process
        self.json = False
        self.split = False  # info to the standard output

    def failed(self, problem: str) -> None:
        """The record with which a kubelet ends: one per problem."""
        self._write("E", structured("command failed", err=problem))

    def error(self, message: str) -> None:
        """An error that ends nothing."""
        self._write("E", message)

    def info(self, message: str, verbosity: int = 0) -> None:
        """A line of the given verbosity; whether it is wanted is the caller's matter."""
        self._write("I", message, verbosity)

    def raw(self, line: str) -> None:
        """A line that is no log record."""
        print(line, file=sys.stderr, flush=True)

    def _write(self, letter: str, message: str, verbosity: int | None = None) -> None:
        caller = sys._getframe(2)
        file, now = PurePath(caller.f_code.co_filename), time.time()
        if self.json:
            where = f"{file.parent.name}/{file.name}:{caller.f_lineno}"
            line = json_line(now, where, message, verbosity)
        else:
            stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1e6):06d}"
            line = text_header(letter, stamp, self._process, file.name, caller.f_lineno) + text_body(message)
        stream = sys.stdout if self.split and letter == "I" else sys.stderr
        print(line, file=stream, flush=True)
