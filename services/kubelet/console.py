"""Writes the output of the executable: klog lines on standard error, in the format of the services' logs."""

import os
import sys
import time
from pathlib import PurePath

from shared.log.klog import json_line, structured, text_body, text_header
from shared.log.log_copy import CopyTarget

_MAX_WRITE_SECONDS = 5.0  # in total, for a reader that does not read: it may delay start and end by this much


class Console:
    """Writes klog lines without a buffer. `process`: the id in the lines; `json` and `split`: as in the configuration's
    `logging`.

    Never raises: a node starts even if its output cannot be written."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._outlets: dict[int, CopyTarget] = {}
        self._seconds_left = _MAX_WRITE_SECONDS
        self.json = False
        self.split = False  # True = info goes to the standard output

    def failed(self, problem: str) -> None:
        """Write the record with which a kubelet ends, one per problem."""
        self._write("E", structured("command failed", err=problem))

    def error(self, message: str) -> None:
        """Write an error that does not end the kubelet."""
        self._write("E", message)

    def info(self, message: str, verbosity: int = 0) -> None:
        """Write a line of the given verbosity; the caller decides whether it is logged."""
        self._write("I", message, verbosity)

    def raw(self, line: str) -> None:
        """Write a line that is no log record."""
        self._put(line, 2)

    def _write(self, letter: str, message: str, verbosity: int | None = None) -> None:
        caller = sys._getframe(2)
        file, now = PurePath(caller.f_code.co_filename), time.time()
        where = f"{file.parent.name}/{file.name}"  # such as kubelet/command.py
        if self.json:
            line = json_line(now, f"{where}:{caller.f_lineno}", message, verbosity)
        else:
            stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1e6):06d}"
            line = text_header(letter, stamp, self._process, where, caller.f_lineno) + text_body(message)
        self._put(line, 1 if self.split and letter == "I" else 2)

    def _put(self, line: str, fd: int) -> None:
        data = f"{line}\n".encode(errors="backslashreplace")
        try:
            if fd not in self._outlets:
                self._outlets[fd] = CopyTarget(os.dup(fd))
            while data:
                try:
                    data = data[self._outlets[fd].write(data) :]
                except BlockingIOError:
                    began = time.monotonic()
                    ready = self._outlets[fd].ready(int(self._seconds_left * 1000))
                    self._seconds_left = max(self._seconds_left - (time.monotonic() - began), 0.0)
                    if not ready:
                        return
        except OSError:
            pass  # nobody reads, or the disk is full
