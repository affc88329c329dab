"""Rotates the logs of running containers (pods.md 6.10): files in threads, ReopenContainerLog in between.

A kill at any step leaves what the next pass mends: a log that was renamed and not reopened is missing, and is opened
anew; what was being packed is not packed yet. A full disk costs the packing, and never the rotation.
"""

import asyncio
import contextlib
import gzip
import logging
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from services.podsync.core.logs.log_rotation import (
    PACKED,
    UNFINISHED,
    LogLimits,
    before_rotation,
    is_due,
    rotated_name,
    rotated_of,
    useless,
)
from shared.clock import Clock
from shared.crash import crash_point
from shared.cri.interface import Runtime, RuntimeCallError

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

log = logging.getLogger(__name__)

_BLOCK = 1 << 18  # bytes read at a time; a thread that packs a block holds nobody up
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # whoever may write logs may have put anything there
_LEVEL = 6  # of gzip: twice as fast as the highest for nearly the size


class LogRotation:
    """`logs` tells the logs of running containers: id -> path. At most `workers` are rotated at a time."""

    def __init__(
        self, runtime: Runtime, clock: Clock, limits: LogLimits, workers: int, logs: Callable[[], Mapping[str, str]]
    ) -> None:
        self._runtime, self._clock, self._limits, self._logs = runtime, clock, limits, logs
        self._turns = asyncio.Semaphore(workers)
        # One thread more, so that sizes can be looked at while all workers pack.
        self._threads = ThreadPoolExecutor(workers + 1, thread_name_prefix="logs")
        self._tidied: set[str] = set()  # containers whose files were looked through once by this process
        self._tasks: dict[str, asyncio.Task[None]] = {}  # container id -> its rotation

    async def keep(self, interval: float) -> None:
        """Look at all logs every `interval` seconds, until cancelled."""
        try:
            while True:
                await asyncio.sleep(interval)
                try:
                    await self.look()
                except Exception:  # the next look must come
                    log.exception("looking at the container logs failed in a way nobody thought of")
        finally:
            for task in self._tasks.values():
                task.cancel()
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def look(self) -> None:
        """One look at every log; rotations are begun and not waited for."""
        if self._limits.size < 0:
            return
        logs = {container: path for container, path in self._logs().items() if container not in self._tasks}
        sizes = await self._in_thread(_sizes, logs)
        self._tidied &= self._logs().keys()
        for container, size in sizes.items():
            if size is None or is_due(size, self._limits) or container not in self._tidied:
                task = asyncio.create_task(
                    self._attend(container, Path(logs[container]), size), name=f"log {container}"
                )
                self._tasks[container] = task
                task.add_done_callback(partial(self._ended, container))

    def _ended(self, container: str, _: asyncio.Task[None]) -> None:
        del self._tasks[container]

    async def finished(self) -> None:
        """Wait for the rotations under way."""
        await asyncio.gather(*self._tasks.values())

    async def _attend(self, container: str, path: Path, size: int | None) -> None:
        async with self._turns:
            try:
                if container not in self._tidied:
                    await self._in_thread(_tidy, path)
                    self._tidied.add(container)
                if size is None:
                    await self._reopen_missing(container, path)
                elif is_due(size, self._limits):
                    await self._rotate(container, path)
            except FileNotFoundError:
                pass  # the container was removed meanwhile
            except OSError as error:
                log.warning("the log of container %s cannot be rotated: %s", container, error)
            except Exception:
                log.exception("the rotation of the log of container %s failed in a way nobody thought of", container)

    async def _reopen_missing(self, container: str, path: Path) -> None:
        """A kill, or somebody, took the file away: what the container writes goes where nobody reads it."""
        try:
            await self._runtime.reopen_container_log(container)
            log.info("the log %s was missing and is opened anew", path)
        except RuntimeCallError as error:
            log.warning("the log %s is missing and cannot be opened anew: %s", path, error)

    async def _rotate(self, container: str, path: Path) -> None:
        await self._in_thread(_make_room, path, self._limits)
        if container not in self._logs():
            return  # it ended while older files were packed; its log stays where readers look for it
        rotated = await self._in_thread(_rename, path, self._local_time())
        crash_point("podsync.logs.renamed")
        try:
            await self._runtime.reopen_container_log(container)
        except RuntimeCallError as error:
            with contextlib.suppress(OSError):
                await self._in_thread(_rename_back, rotated, path)
            log.warning("the log %s keeps its name, for it cannot be opened anew: %s", path, error)
            return
        crash_point("podsync.logs.reopened")
        log.debug("the log %s was rotated to %s", path, rotated.name)

    def _local_time(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall())  # noqa: DTZ006 - it is what file names say

    async def _in_thread(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)


def _sizes(logs: Mapping[str, str]) -> dict[str, int | None]:
    """Bytes of each log; None = it is missing. What is no file is nobody's to rotate."""
    sizes: dict[str, int | None] = {}
    for container, path in logs.items():
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            sizes[container] = None
        except OSError:
            continue
        else:
            if stat.S_ISREG(status.st_mode):
                sizes[container] = status.st_size
    return sizes


def _rotated(path: Path) -> list[str]:
    with os.scandir(path.parent) as entries:
        return rotated_of(path.name, [entry.name for entry in entries])


def _tidy(path: Path) -> None:
    for name in useless(_rotated(path)):
        (path.parent / name).unlink(missing_ok=True)


def _make_room(path: Path, limits: LogLimits) -> None:
    """Remove first, for that needs no space; what cannot be packed stays as it is until the next rotation."""
    files = before_rotation(_rotated(path), limits)
    for name in files.remove:
        (path.parent / name).unlink(missing_ok=True)
    crash_point("podsync.logs.removed")
    for name in files.pack:
        try:
            _pack(path.parent / name)
        except OSError as error:
            log.warning("the log %s is not packed: %s", path.parent / name, error)


def _pack(plain: Path) -> None:
    unfinished = plain.with_name(f"{plain.name}{UNFINISHED}")
    try:
        with open(plain, "rb", opener=lambda name, _: os.open(name, _OPEN)) as source:
            status = os.fstat(source.fileno())
            if not stat.S_ISREG(status.st_mode):
                return
            unfinished.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(unfinished, "wb", opener=lambda name, _: os.open(name, flags, 0o600)) as target:
                os.fchmod(target.fileno(), stat.S_IMODE(status.st_mode))
                with gzip.GzipFile("", "wb", _LEVEL, target, mtime=status.st_mtime) as packed:
                    shutil.copyfileobj(source, packed, _BLOCK)
                    crash_point("podsync.logs.packing")
        packed_name = plain.with_name(f"{plain.name}{PACKED}")
        unfinished.rename(packed_name)
        crash_point("podsync.logs.packed")
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    try:
        plain.unlink()
    except FileNotFoundError:  # the container was removed meanwhile, and all its files with it
        packed_name.unlink(missing_ok=True)


def _rename(path: Path, now: datetime) -> Path:
    rotated = path.with_name(rotated_name(path.name, _rotated(path), now))
    path.rename(rotated)
    return rotated


def _rename_back(rotated: Path, path: Path) -> None:
    """Unless the runtime did open a new file though it said no: that one is written to, and is never replaced."""
    os.link(rotated, path, follow_symlinks=False)
    rotated.unlink()
