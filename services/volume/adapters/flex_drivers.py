"""Calls FlexVolume drivers: executables of the node that print one JSON object and end (volumes.md 19); blocking.

A driver is found anew for each call, so that it may be installed, replaced and removed at any time; one that was
replaced is first called to `init`. What a driver leaves running in the background holds up no call. A driver may
outlive the process that called it: nothing else is done with its volume until it has ended.
"""

import contextlib
import errno
import os
import select
import signal
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from services.volume.adapters.programs import leads_session_on
from services.volume.core.specs.flex_volume import MAX_ANSWER_BYTES, Answer, read_answer
from shared.process.crash import crash_point
from shared.time.clock import Clock, SystemClock

CALL_SECONDS = 110.0  # after which a driver and the processes of its session's group are killed
_MAX_REAP_SECONDS = 5.0  # for a killed driver; inside a system call on a dead server it does not end
_CHUNK_BYTES = 16 << 10


class FlexDrivers:
    """The drivers below the directory `volumePluginDir`. Methods raise OSError."""

    def __init__(self, directory: str, clock: Clock) -> None:
        self._directory, self._clock = Path(directory), clock
        self._known: dict[str, tuple[tuple[int, ...], Answer]] = {}  # by driver: the executable that answered to init

    def capabilities(self, driver: str) -> Answer:
        """Return what the driver answers to `init`; a driver is called once as long as its executable is the same."""
        identity = self._identity(driver)
        known = self._known.get(driver)
        if known is None or known[0] != identity:
            known = identity, self._call(driver, "init", (), {})
            self._known[driver] = known
        return known[1]

    def known(self, driver: str) -> Answer | None:
        """Return what the driver answered to `init` last; None = it was not called yet."""
        known = self._known.get(driver)
        return known[1] if known is not None else None

    def call(self, driver: str, command: str, *arguments: str, secrets: Mapping[str, str] | None = None) -> Answer:
        """Call the driver and return its answer. `secrets`: values that no text may contain. Raises FileNotFoundError
        where it is not installed, DriverFailureError where it fails, TimeoutError."""
        self._identity(driver)
        return self._call(driver, command, arguments, secrets or {})

    def require_ended(self, driver: str, path: Path | str, what: object = "") -> None:
        """Raise OSError while a call of the driver with this argument has not ended, which another process may have
        begun. `what`: the argument as the text names it, "" = as it is."""
        if leads_session_on(path, self._executable(driver)):
            why = f"an earlier call of the FlexVolume driver {driver} for {what or path} has not ended"
            raise OSError(errno.EBUSY, why)

    def _executable(self, driver: str) -> Path:
        return self._directory / driver.replace("/", "~") / driver.rpartition("/")[2]

    def _identity(self, driver: str) -> tuple[int, ...]:
        """Return what distinguishes the executable from one that replaces it."""
        path = self._executable(driver)
        if path.parent.is_symlink():
            why = f"{path.parent} is a symbolic link, and must be a directory"
            raise OSError(errno.ENOTDIR, f"the FlexVolume driver {driver} is not used: {why}")
        try:
            found = path.stat()
        except FileNotFoundError:
            why = f"install it as {path} (volumePluginDir)"
            raise FileNotFoundError(errno.ENOENT, f"there is no FlexVolume driver {driver}: {why}") from None
        if not stat.S_ISREG(found.st_mode) or not found.st_mode & 0o111:
            raise OSError(errno.EACCES, f"the FlexVolume driver {driver} is not used: {path} is no executable file")
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _call(self, driver: str, command: str, arguments: Sequence[str], secrets: Mapping[str, str]) -> Answer:
        crash_point(f"volume.flex.calling.{command}")
        try:
            code, output = self._run([str(self._executable(driver)), command, *arguments])
        except TimeoutError:
            why = f"was called to {command}, and has not ended within {CALL_SECONDS:g} s"
            raise TimeoutError(errno.ETIMEDOUT, f"the FlexVolume driver {driver} {why}") from None
        except OSError as error:
            why = f"cannot be called to {command}: {error.strerror}"
            raise OSError(error.errno, f"the FlexVolume driver {driver} {why}") from None
        crash_point(f"volume.flex.answered.{command}")
        return read_answer(driver, command, code, output, secrets)

    def _run(self, command: Sequence[str]) -> tuple[int, bytes]:
        """Return the exit status and the beginning of the standard output. Raises TimeoutError."""
        null = subprocess.DEVNULL
        process = subprocess.Popen(
            command, stdin=null, stdout=subprocess.PIPE, stderr=null, start_new_session=True, bufsize=0
        )
        assert process.stdout is not None
        end, out = os.pidfd_open(process.pid), process.stdout.fileno()
        try:
            os.set_blocking(out, False)
            output = self._read_to_the_end(end, out)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_MAX_REAP_SECONDS)
            raise
        finally:
            os.close(end)
            process.stdout.close()
        return process.wait(), output

    def _read_to_the_end(self, end: int, out: int) -> bytes:
        """Read until the process has ended; what others write to its output after that does not count."""
        deadline, output, poll = self._clock.monotonic() + CALL_SECONDS, bytearray(), select.poll()
        poll.register(end, select.POLLIN)
        poll.register(out, select.POLLIN)
        while True:
            left = deadline - self._clock.monotonic()
            ready = {found for found, _ in poll.poll(max(0.0, left) * 1000)}
            if end in ready:
                while len(output) <= MAX_ANSWER_BYTES and (chunk := _read(out)):
                    output += chunk
                return bytes(output)
            if left <= 0:
                raise TimeoutError
            if out in ready:
                if chunk := _read(out):
                    output += chunk[: MAX_ANSWER_BYTES + 1 - len(output)]
                else:
                    poll.unregister(out)


def _read(descriptor: int) -> bytes:
    """Return what can be read at once; nothing at the end of the output."""
    try:
        return os.read(descriptor, _CHUNK_BYTES)
    except BlockingIOError:
        return b""


NO_FLEX_DRIVERS = FlexDrivers("", SystemClock())
