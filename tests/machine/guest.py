"""A client of the program that runs commands in a machine (tests/machine/files/usr/lib/machine/guest.pl), by a serial
line. Notices a machine that ends, or from which nothing comes any more."""

import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

QUIET_SECONDS = 30.0  # without a sign of progress, after which a machine hangs; a command reports every 2 s
# The same at a shutdown, whose end shows nothing: systemd waits up to 20 s for what ignores SIGTERM, as containers do,
# and writes to the disk what is not there yet.
_QUIET_SHUTDOWN_SECONDS = 120.0
_MAX_START_SECONDS = 600.0  # for a command that is not waited for
_LOOK_EVERY = 0.5  # seconds; what shows progress besides the line is looked at so often


class MachineError(AssertionError):
    """The machine has ended or hangs, or a command was not done in time."""


class MachineEndedError(MachineError):
    """The machine has ended."""


class Guest:
    """The line of one machine. `progress`: a number that changes while the machine boots, or waits for a processor."""

    def __init__(self, line: socket.socket, progress: Callable[[], int]) -> None:
        self._line, self._progress = line, progress
        self._buffer = b""
        self._number = 0

    def wait_for_boot(self, seconds: float) -> str:
        """The id of the boot that answers. MachineError after that time, after QUIET_SECONDS without progress, or when
        the machine ends."""
        deadline = time.monotonic() + seconds
        while True:
            verb, *words = self._next(deadline, "the machine does not boot")
            if verb == "boot":
                return words[0]

    def wait_for_end(self, seconds: float) -> None:
        """Return when the machine has ended. MachineError after that time, or after two minutes without progress."""
        deadline = time.monotonic() + seconds
        with suppress(MachineEndedError):
            while True:
                self._next(deadline, "the machine does not shut down", _QUIET_SHUTDOWN_SECONDS)

    def run(self, command: Sequence[str], seconds: float) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end; the return code is negative for a signal. MachineError after that time, or when the
        machine ends, boots or hangs meanwhile."""
        number, what = self._begin(command, seconds), " ".join(command)[:300]
        began = time.monotonic()
        while True:
            # The program in there ends the command a moment before.
            verb, *words = self._next(began + seconds + QUIET_SECONDS, f"no answer to: {what}")
            if verb == "boot":
                raise MachineError(f"the machine booted meanwhile: {what}")
            if verb == "done" and words[0] == number:
                if time.monotonic() - began > seconds and words[1] == "-9":
                    raise MachineError(f"not done within {seconds:.0f} s: {what}")
                out, error = (bytes.fromhex(text[1:]).decode(errors="replace") for text in words[2:4])
                return subprocess.CompletedProcess(list(command), int(words[1]), out, error)

    def start(self, command: Sequence[str]) -> None:
        """Begin a command without a wait for its end, which may be that of the machine."""
        self._begin(command, _MAX_START_SECONDS)

    def _begin(self, command: Sequence[str], seconds: float) -> str:
        """Send a command, which is killed after that time; return the number that its answer has."""
        self._number += 1
        arguments = "\0".join(command).encode().hex()
        try:
            self._line.settimeout(QUIET_SECONDS)
            self._line.sendall(f"run {self._number} {seconds:.0f} {arguments}\n".encode())
        except OSError as error:
            raise MachineError(f"the machine has ended, or reads nothing: {error}") from error
        return str(self._number)

    def _next(self, deadline: float, what: str, max_quiet: float = QUIET_SECONDS) -> list[str]:
        """The words of the next line."""
        quiet_since, progress = time.monotonic(), self._progress()
        while b"\n" not in self._buffer:
            now = time.monotonic()
            if self._progress() != progress:
                quiet_since, progress = now, self._progress()
            if now > deadline or now - quiet_since > max_quiet:
                reason = "too late" if now > deadline else f"no sign of progress for {max_quiet:.0f} s"
                raise MachineError(f"{what}: {reason}")
            try:
                self._line.settimeout(_LOOK_EVERY)
                read = self._line.recv(65536)
            except TimeoutError:
                continue
            except ConnectionResetError:
                read = b""
            if not read:
                raise MachineEndedError(f"{what}: the machine has ended")
            quiet_since = now
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace").split() or [""]
