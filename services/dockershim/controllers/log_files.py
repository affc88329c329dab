"""The logs of all containers: copied while they run, complete before an exit is shown."""

import asyncio
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from services.dockershim.adapters.engine import Engine, Json
from services.dockershim.adapters.log_copy import LOG_MODE, LogCopy
from services.dockershim.adapters.log_watch import LogWatch
from services.dockershim.core.errors import CallError
from services.dockershim.core.identity import CONTAINER, LOG_PATH, TYPE

log = logging.getLogger(__name__)

_GATHER_SECONDS = 0.05  # to wait for further lines: a busy log is written thousands of times a second
_RETRY_SECONDS = 5.0  # after a failed write, such as to a full disk
_THREADS = 2  # that copy: containers that write without a pause keep them busy, and leave all others to the calls


class _Copied:
    def __init__(self, copy: LogCopy, directory: Path) -> None:
        self.copy, self.directory, self.lock, self.wake = copy, directory, asyncio.Lock(), asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class LogFiles:
    """Copies logs. `run` reads the kernel's events of Docker's files."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._watch = LogWatch()
        self._copies: dict[str, _Copied] = {}
        self._complete: set[str] = set()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="log")

    async def run(self) -> None:
        """Copy until cancelled."""
        try:
            await self._watch.run()
        finally:
            for container_id in tuple(self._copies):
                self.close(container_id)

    async def follow_running(self) -> None:
        """Follow each running container that is not followed."""
        followed = tuple(self._copies)
        every = await self._engine.containers([f"{TYPE}={CONTAINER}"])
        for container_id in {*followed, *self._complete} - {listed["Id"] for listed in every}:
            self.close(container_id)  # removed by hand, or with its sandbox
        for listed in every:
            if listed["State"] == "running" and listed["Id"] not in self._copies:
                with suppress(CallError):
                    self.open(await self._engine.inspect(listed["Id"]))

    @staticmethod
    def make(inspected: Json) -> None:
        """Make the log of a container that is about to start. Raises CallError; blocks."""
        if target := (inspected["Config"]["Labels"] or {}).get(LOG_PATH, ""):
            try:
                os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, LOG_MODE))
            except OSError as error:
                raise CallError("Unknown", f"the log {target} cannot be made: {error.strerror}") from None

    def open(self, inspected: Json) -> None:
        """Begin to copy the log of a container that was started. Logs what fails."""
        container_id, target = inspected["Id"], (inspected["Config"]["Labels"] or {}).get(LOG_PATH, "")
        if not target or container_id in self._copies or not inspected["LogPath"]:
            return  # Docker has no log of a container whose start failed early
        source = Path(inspected["LogPath"])
        copy = LogCopy(source, Path(target))
        try:
            copy.open()
        except OSError as error:
            copy.close()
            log.warning("The log %s cannot be opened: %s", target, error.strerror)
            return
        copied = self._copies[container_id] = _Copied(copy, source.parent)
        self._watch.add(copied.directory, copied.wake.set)
        copied.wake.set()
        copied.task = asyncio.create_task(self._follow(container_id, copied), name=f"log {container_id[:12]}")

    async def reopen(self, inspected: Json) -> None:
        """Write on to a new file under the log's name. Raises CallError."""
        copied = self._copies.get(inspected["Id"])
        if copied is None:
            self.open(inspected)
            return
        async with copied.lock:
            try:
                await asyncio.get_running_loop().run_in_executor(self._threads, copied.copy.reopen)
            except OSError as error:
                raise CallError("Unknown", f"the log cannot be opened again: {error.strerror}") from None

    async def drain(self, container_id: str) -> None:
        """Copy the rest of the log of a container that has ended. Logs what fails."""
        if container_id in self._complete:
            return
        copied = self._copies.get(container_id)
        try:
            if copied is None:
                self.open(await self._engine.inspect(container_id))
                copied = self._copies.get(container_id)
            if copied is not None:
                while not await self._copy(copied):
                    continue
        except (OSError, CallError) as error:
            log.warning("The log of container %s is not complete: %s", container_id[:12], error)
            return
        self.close(container_id)
        self._complete.add(container_id)

    def close(self, container_id: str) -> None:
        """Copy this log no more."""
        self._complete.discard(container_id)
        copied = self._copies.pop(container_id, None)
        if copied is None:
            return
        if copied.task is not None:
            copied.task.cancel()
        self._watch.remove(copied.directory)
        copied.copy.close()

    async def _follow(self, container_id: str, copied: _Copied) -> None:
        said = ""
        while True:
            await copied.wake.wait()
            copied.wake.clear()
            try:
                if not await self._copy(copied):
                    copied.wake.set()
                said = ""
            except OSError as error:
                if (text := str(error.strerror)) != said:
                    said = text
                    log.warning("The log of container %s cannot be written: %s", container_id[:12], text)
                await asyncio.sleep(_RETRY_SECONDS)
                copied.wake.set()
            await asyncio.sleep(_GATHER_SECONDS)

    async def _copy(self, copied: _Copied) -> bool:
        """Copy a piece of a log; whoever else waits for its turn gets it afterwards. Returns whether that was all."""
        async with copied.lock:
            return await asyncio.get_running_loop().run_in_executor(self._threads, copied.copy.copy)
