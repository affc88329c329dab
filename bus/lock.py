"""Allows one process per service: it takes an exclusive flock before it binds anything, and the file names the holder.

Decides which process is the service and how long it waits before it works after crashes; knows nothing of the bus. The
kernel frees the lock with the process, so a SIGKILL leaves nothing to clean up. The file stays."""

import asyncio
import fcntl
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from bus.manifest import Holder, read_holder
from shared.process.identity import identity_of
from shared.time.backoff import Backoff

MIN_WORK_SECONDS = 10.0  # that a process must work for its end to count as no crash
MAX_FREE_RESTARTS = 3  # quick restarts before any delay, because an upgrade or an operator may cause as many
DELAYS = Backoff(initial=1.0, cap=30.0)
MAX_KEPT_STARTS = 16
_RECORD_BYTES = 1024  # of the record, whose size is fixed so that one write replaces all of it


class ServiceStart(Struct, frozen=True):
    """One start of a service: when (CLOCK_MONOTONIC seconds), and the delay before it worked."""

    at: float
    delay: float


def start_delay(starts: Sequence[ServiceStart], now: float) -> float:
    """Return seconds to wait before working, given the earlier starts (oldest first): 0, then 1, 2, 4 … at most 30.

    Pure. A start counts as quick when the next one came within 10 s after its delay. Starts in the future belong to
    another boot and do not count."""
    quick, after = 0, now
    for start in reversed(starts):
        if not 0 <= after - start.at < start.delay + MIN_WORK_SECONDS:
            break
        quick, after = quick + 1, start.at
    return DELAYS.delay(quick - MAX_FREE_RESTARTS)


def read_starts(run_dir: Path, service: str, generation: str) -> tuple[float, ...]:
    """Return when the service was started (CLOCK_MONOTONIC seconds, oldest first) since it last ended on request.

    Reads the lock's file without the lock. Empty where the starts belong to another supervisord than `generation`."""
    try:
        record = _lock_file(run_dir, service).read_bytes()[:_RECORD_BYTES]
    except OSError:
        return ()
    return tuple(start.at for start in _decode_starts(record, generation))


def _lock_file(run_dir: Path, service: str) -> Path:
    return run_dir / "locks" / f"{service}.lock"


def _decode_starts(record: bytes, generation: str) -> list[ServiceStart]:
    try:
        decoded = json.loads(record)
        if decoded["supervisord"] != generation:
            return []
        return [ServiceStart(float(at), float(delay)) for at, delay in decoded["starts"]]
    except (ValueError, KeyError, TypeError):  # the file is new, or was not written by us
        return []


class ServiceLock:
    """The lock `<run dir>/locks/<service>.lock`. It is held until `release` or the end of the process; children do not
    inherit it.

    `generation`: that of the supervisord that started this process, "" without one. A new generation resets the count
    of starts."""

    def __init__(self, run_dir: Path, service: str, generation: str = "") -> None:
        self.path = _lock_file(run_dir, service)
        self._generation = generation
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._fd is not None

    def try_acquire(self) -> bool:
        """Take the lock if it is free, and write our pid into it. Never blocks."""
        if self._fd is not None:
            return True
        fd = self._open()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._take(fd)
        return True

    async def acquire(self) -> None:
        """Wait until the lock is free, and take it. The kernel wakes the waiting thread; when cancelled, the lock is
        not taken."""
        if self.try_acquire():
            return
        loop = asyncio.get_running_loop()
        acquired: asyncio.Future[int] = loop.create_future()

        def deliver(fd: int) -> None:
            if acquired.done():  # the wait was cancelled meanwhile
                os.close(fd)
            else:
                acquired.set_result(fd)

        def wait() -> None:
            fd = self._open()
            fcntl.flock(fd, fcntl.LOCK_EX)
            try:
                loop.call_soon_threadsafe(deliver, fd)
            except RuntimeError:  # the loop is closed, so no task waits any more
                os.close(fd)

        # The thread is a daemon, because flock cannot be interrupted and must not delay the exit.
        threading.Thread(target=wait, name=f"lock {self.path.name}", daemon=True).start()
        self._take(await acquired)

    def release(self) -> None:
        """Release the lock. Nothing happens when it is not held."""
        if self._fd is not None:
            self._write(self._starts(), process="")  # this process may continue, but is no longer the holder
            os.close(self._fd)
            self._fd = None

    def held_by(self) -> Holder | None:
        """Return the process that took the lock last, if it runs and did not release it."""
        return read_holder(self.path)

    def holder(self) -> int | None:
        """Return the id of that process."""
        found = self.held_by()
        return found.pid if found else None

    def record_start(self, now: float) -> float:
        """Note in the held lock that the service starts at `now` (CLOCK_MONOTONIC). Return the seconds to wait before
        working."""
        if self._fd is None:
            raise RuntimeError(f"{self.path} is not held")
        starts = self._starts()
        delay = start_delay(starts, now)
        self._write([*starts, ServiceStart(now, delay)][-MAX_KEPT_STARTS:])
        return delay

    def record_end(self) -> None:
        """Note in the held lock that the service ends on request, so that its starts do not count as crashes."""
        if self._fd is not None:
            self._write([])

    def _open(self) -> int:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _take(self, fd: int) -> None:
        self._fd = fd
        self._write(self._starts())

    def _starts(self) -> list[ServiceStart]:
        assert self._fd is not None
        return _decode_starts(os.pread(self._fd, _RECORD_BYTES, 0), self._generation)

    def _write(self, starts: Sequence[ServiceStart], process: str | None = None) -> None:
        assert self._fd is not None
        record = {
            "pid": os.getpid(),
            "process": identity_of(os.getpid()) if process is None else process,
            "supervisord": self._generation,
            "starts": [(round(start.at, 3), start.delay) for start in starts],
        }
        os.pwrite(self._fd, json.dumps(record).encode().ljust(_RECORD_BYTES - 1) + b"\n", 0)
