"""Operations under way: asks for what they need, waits for a turn, performs in a thread, tells the reconciler."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

from bus.messages.event import KubeEvent
from services.volume.actions import Actions, error_text
from services.volume.adapters.cluster_content import ClusterContent
from services.volume.core.files_source import Files
from services.volume.core.operations import MountVolume, Operation, UnmountVolume
from services.volume.core.outcome import Outcome
from services.volume.core.payload import ContentError, Gathered
from services.volume.core.reconciler import Reconciler
from shared.clock import Clock
from shared.crash import crash_point

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class Operations:
    """At most `workers` perform at once. `on_end` is called after each with the event to record, if there is one."""

    def __init__(
        self, reconciler: Reconciler, actions: Actions, content: ClusterContent, clock: Clock, workers: int
    ) -> None:
        self.actions = actions
        self.on_end: Callable[[KubeEvent | None], None] = lambda _: None
        self._reconciler, self._content, self._clock = reconciler, content, clock
        # Operations wait for their turn here and not in the pool: whoever is let through acts at once, on what is true
        # then. One thread more, so that looking at directories never waits for operations that hang.
        self._turns = asyncio.Semaphore(workers)
        self._workers = ThreadPoolExecutor(workers + 1, thread_name_prefix="volume")
        self._tasks: set[asyncio.Task[None]] = set()
        self._gathering: dict[MountVolume, asyncio.Task[Gathered]] = {}

    def start(self, operation: Operation) -> None:
        """Begin; the reconciler counts it as under way already."""
        _log.debug("starting %s", _name(operation))
        task = asyncio.create_task(self._run(operation), name=f"{type(operation).__name__} {operation.uid}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def give_up_what_is_not_due(self) -> None:
        """Nobody waits for an answer about a volume that is not wanted any more, least of all its teardown."""
        for operation, gathering in self._gathering.items():
            if not self._reconciler.still_due(operation, self._clock.monotonic()):
                gathering.cancel()

    async def in_thread(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Call something that blocks."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, function, *arguments)

    async def in_turn(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Call something that blocks and may hang: it counts among the `workers`."""
        async with self._turns:
            return await self.in_thread(function, *arguments)

    async def close(self) -> None:
        """Leave everything as it is."""
        for task in self._tasks:
            task.cancel()
        await self._content.close()
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def _run(self, operation: Operation) -> None:
        gathered: Gathered | None = Gathered()
        if isinstance(operation, MountVolume) and isinstance(operation.source, Files):
            gathered = await self._gather(operation, operation.source)
        event = None
        async with self._turns:
            if gathered is not None and self._reconciler.still_due(operation, self._clock.monotonic()):
                event = await self._perform(operation, gathered)
            else:
                _log.info("%s is not wanted any more", _name(operation))
                self._reconciler.abandoned(operation)
        self.on_end(event)

    async def _gather(self, operation: MountVolume, source: Files) -> Gathered | None:
        """What others know of the content, asked without a turn: it may take long. None = given up."""
        gathering = self._gathering[operation] = asyncio.create_task(self._content.gather(source))
        try:
            await asyncio.wait({gathering})
        finally:
            del self._gathering[operation]
            gathering.cancel()
        return None if gathering.cancelled() else gathering.result()

    async def _perform(self, operation: Operation, gathered: Gathered) -> KubeEvent | None:
        outcome = Outcome()
        try:
            crash_point(f"volume.calling.{type(operation).__name__}")
            path = await self.in_thread(self.actions.perform, operation, gathered)
            crash_point(f"volume.acted.{type(operation).__name__}")
            outcome = Outcome(host_path=path, versions=gathered.versions, refresh_at=gathered.refresh_at)
        except ContentError as failure:
            outcome = Outcome(error=str(failure), patience=failure.patience)
        except OSError as failure:
            outcome = Outcome(error=error_text(failure))
        except Exception as failure:  # one volume must not take the others down
            _log.exception("%s failed in a way nobody thought of", _name(operation))
            outcome = Outcome(error=f"unexpected {type(failure).__name__}")
        if isinstance(operation, UnmountVolume):
            self._content.forget(operation.uid)
        done = self._reconciler.done(operation, self._clock.monotonic(), outcome)
        if not outcome.error:
            _log.info("%s done", _name(operation))
            return done.event
        _log.log(
            logging.INFO if done.quiet else logging.WARNING,
            "Operation for %s failed. Next retry in %.1f s. Error: %s",
            _name(operation),
            done.retry_in,
            outcome.error,
        )
        return done.event


def _name(operation: Operation) -> str:
    return f"{type(operation).__name__} {operation.uid}{operation.volume and '/'}{operation.volume}"
