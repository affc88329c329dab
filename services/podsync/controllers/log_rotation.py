"""Rotates the logs of running containers (pods.md 6.10): renames and packs files in threads, and has the runtime reopen
the log.
The next look repairs what a kill at any step left: a log that was renamed and not reopened is missing, and is opened
again. A full disk prevents the packing, but never the rotation.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from services.podsync.adapters.logs import log_files
from services.podsync.core.log_rotation import LogLimits, is_due
from shared.cri.interface import Runtime, RuntimeCallError
from shared.process.crash import crash_point
from shared.time.clock import Clock

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

log = logging.getLogger(__name__)


class LogRotation:
    """Rotates logs, at most `workers` at a time. `logs` returns the paths of the logs of running containers by id."""

    def __init__(
        self, runtime: Runtime, clock: Clock, limits: LogLimits, workers: int, logs: Callable[[], Mapping[str, str]]
    ) -> None:
        self._runtime, self._clock, self._limits, self._logs = runtime, clock, limits, logs
        self._turns = asyncio.Semaphore(workers)
        # One thread more, so that sizes can be read while all workers pack.
        self._threads = ThreadPoolExecutor(workers + 1, thread_name_prefix="logs")
        self._tidied: set[str] = set()  # containers whose files were looked through once by this process
        self._tasks: dict[str, asyncio.Task[None]] = {}  # container id -> its rotation

    async def run(self, interval: float) -> None:
        """Look at all logs every `interval` seconds, until cancelled."""
        try:
            while True:
                await asyncio.sleep(interval)
                try:
                    await self.look()
                except Exception:  # a failed look must not end the next ones
                    log.exception("a look at the container logs failed unexpectedly")
        finally:
            for task in self._tasks.values():
                task.cancel()
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def look(self) -> None:
        """Look at every log once and begin rotations, without waiting for them."""
        if self._limits.size < 0:
            return
        logs = {container: path for container, path in self._logs().items() if container not in self._tasks}
        sizes = await self._in_thread(log_files.sizes, logs)
        self._tidied &= self._logs().keys()
        for container, size in sizes.items():
            if size is None or is_due(size, self._limits) or container not in self._tidied:
                task = asyncio.create_task(
                    self._attend(container, Path(logs[container]), size), name=f"log {container}"
                )
                self._tasks[container] = task
                task.add_done_callback(partial(self._forget, container))

    def _forget(self, container: str, _: asyncio.Task[None]) -> None:
        del self._tasks[container]

    async def finished(self) -> None:
        """Wait until the rotations under way have ended."""
        await asyncio.gather(*self._tasks.values())

    async def _attend(self, container: str, path: Path, size: int | None) -> None:
        async with self._turns:
            try:
                if container not in self._tidied:
                    await self._in_thread(log_files.remove_unfinished, path)
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
                log.exception("the rotation of the log of container %s failed unexpectedly", container)

    async def _reopen_missing(self, container: str, path: Path) -> None:
        """Have the runtime open a missing log again; until then the container's output is lost. A kill during a
        rotation, or a user, removed the file."""
        try:
            await self._runtime.reopen_container_log(container)
            log.info("the log %s was missing and is opened again", path)
        except RuntimeCallError as error:
            log.warning("the log %s is missing and cannot be opened again: %s", path, error)

    async def _rotate(self, container: str, path: Path) -> None:
        await self._in_thread(log_files.make_room, path, self._limits)
        if container not in self._logs():
            return  # the container ended while older files were packed; readers look for its log at this path
        rotated = await self._in_thread(log_files.rename, path, self._local_time())
        crash_point("podsync.logs.renamed")
        try:
            await self._runtime.reopen_container_log(container)
        except RuntimeCallError as error:
            with contextlib.suppress(OSError):
                await self._in_thread(log_files.rename_back, rotated, path)
            log.warning("the log %s keeps its name, for it cannot be opened again: %s", path, error)
            return
        crash_point("podsync.logs.reopened")
        log.debug("the log %s was rotated to %s", path, rotated.name)

    def _local_time(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall())  # noqa: DTZ006 - file names contain the local time

    async def _in_thread(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
