"""Volume at work: follows the admitted pods, performs what the reconciler says, publishes. Decides nothing itself."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

from bus.event_recorder import EventRecorder
from bus.interface import Change, Deleted, Freshness, Put
from bus.messages.podsync import AdmittedPod
from bus.messages.streams import PODS_ADMITTED, VOLUMES_MOUNTED, events_of
from services.launch import Context
from services.volume.adapters import host_path, root_dir
from services.volume.adapters.empty_dir import EmptyDirs
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.core.actual_state_of_world import ActualStateOfWorld
from services.volume.core.desired_state_of_world import DesiredStateOfWorld
from services.volume.core.operations import (
    MakePodDirectories,
    MountVolume,
    Operation,
    RemovePodDirectory,
    UnmountVolume,
)
from services.volume.core.reconciler import Reconciler
from services.volume.core.volume_source import EmptyDir, HostPath, VolumeSource, volume_source
from shared.crash import crash_point
from shared.model.objects import Object

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

_log = logging.getLogger(__name__)

LOOP = "volume"
TURN = 5.0  # seconds: an idle loop turns at least this often, so that its progress can be judged
SWEEP = 60.0  # seconds between looks for pod directories that nobody announced
WORKERS = 8  # operations at once; a hostPath on a dead network filesystem may hold one for ever


def build(context: Context) -> "Volume":
    """The service for `services.launch`."""
    return Volume(context)


class Volume:
    """The one owner of `volumes.mounted`, and the only process that mounts."""

    def __init__(self, context: Context) -> None:
        self._root_dir, self._bus, self._clock = context.config.root_dir, context.bus, context.clock
        self._mounted = self._bus.own(VOLUMES_MOUNTED)
        self._events = EventRecorder(self._bus.own(events_of("volume")), self._clock)
        self._admitted = self._bus.follow(PODS_ADMITTED, self._on_admitted)
        self._node_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._reconciler = Reconciler(DesiredStateOfWorld(self._source), ActualStateOfWorld())
        self._directories = PodDirectories(self._root_dir)
        self._empty_dirs = EmptyDirs(self._directories)
        # Operations wait for their turn here and not in the pool: whoever is let through acts at once, on what is true
        # then. One thread more, so that looking at directories never waits for operations that hang.
        self._turns = asyncio.Semaphore(WORKERS)
        self._workers = ThreadPoolExecutor(WORKERS + 1, thread_name_prefix="volume")
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._next_sweep = 0.0

    async def run(self) -> None:
        """Reconcile whenever something changed, until cancelled; mounts are left as they are."""
        try:
            await self._prepare()
            while True:
                self._changed.clear()
                self._bus.progress(LOOP)
                await self._sweep()
                self._reconcile()
                await self._turn_or_change()
        finally:
            for task in self._tasks:
                task.cancel()
            self._workers.shutdown(wait=False, cancel_futures=True)

    def _source(self, pod: Object, name: str) -> VolumeSource:
        return volume_source(pod, name, node_memory=self._node_memory)

    def _on_admitted(self, change: Change[AdmittedPod]) -> None:
        desired = self._reconciler.desired
        match change:
            case Put(_, admitted):
                desired.admit(admitted)
            case Deleted(uid):
                desired.withdraw(uid)
            case Freshness(complete, stale):
                desired.heard(complete=complete, stale=stale)
        self._changed.set()

    async def _prepare(self) -> None:
        """Root directory and reconstruction; until it is known what is mounted nothing is said to be complete."""
        while True:
            try:
                line = await self._in_thread(root_dir.prepare, self._root_dir)
                found = await self._in_thread(self._look_for_volumes)
            except OSError as error:
                self._bus.trouble("root directory", f"{self._root_dir}: {_text(error)}")
                _log.error("%s: cannot be used as the root directory, trying again: %s", self._root_dir, _text(error))
                await self._turn_or_change()
                continue
            break
        self._bus.trouble("root directory", line)
        if line is not None:
            _log.warning("%s", line)
        for uid, volumes in found.items():
            self._reconciler.found(uid, tuple(volumes))
            self._publish(uid, "found on disk")
        self._next_sweep = self._clock.monotonic() + SWEEP
        self._mounted.mark_complete()

    def _look_for_volumes(self) -> dict[str, list[str]]:
        return {uid: self._directories.empty_dirs(uid) for uid in self._directories.uids()}

    async def _sweep(self) -> None:
        now = self._clock.monotonic()
        if now < self._next_sweep:
            return
        self._next_sweep = now + SWEEP
        try:
            for uid in await self._in_thread(self._directories.uids):
                self._reconciler.found_directory(uid)
        except OSError as error:
            _log.warning("%s: cannot be listed: %s", self._directories.pods, _text(error))

    def _reconcile(self) -> None:
        for operation in self._reconciler.operations(self._clock.monotonic()):
            _log.debug("starting %s", operation)
            task = asyncio.create_task(self._perform(operation), name=f"{type(operation).__name__} {operation.uid}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        for event in self._reconciler.refusals():
            _log.warning("pod %s_%s(%s): %s", event.name, event.namespace, event.uid, event.message)
            self._events.record(event)
        for uid in {*self._mounted.keys(), *self._reconciler.desired.pods, *self._reconciler.actual.uids()}:
            self._publish(uid, "reconciled")

    async def _perform(self, operation: Operation) -> None:
        async with self._turns:
            if self._reconciler.still_due(operation, self._clock.monotonic()):
                await self._perform_now(operation)
            else:
                _log.info("%s is not wanted any more", _name(operation))
                self._reconciler.abandoned(operation)
        self._changed.set()

    async def _perform_now(self, operation: Operation) -> None:
        path, error = "", ""
        try:
            crash_point(f"volume.calling.{type(operation).__name__}")
            path = await self._in_thread(self._act, operation)
            crash_point(f"volume.acted.{type(operation).__name__}")
        except OSError as failure:
            error = _text(failure)
        except Exception as failure:  # one volume must not take the others down
            _log.exception("%s failed in a way nobody thought of", operation)
            error = repr(failure)
        done = self._reconciler.done(operation, self._clock.monotonic(), host_path=path, error=error)
        if error:
            _log.warning(
                "Operation for %s failed. Next retry in %.1f s. Error: %s", _name(operation), done.retry_in, error
            )
        else:
            _log.info("%s done", _name(operation))
        if done.event is not None:
            self._events.record(done.event)

    def _act(self, operation: Operation) -> str:
        match operation:
            case MakePodDirectories(uid):
                self._directories.make(uid)
            case MountVolume(uid, volume, EmptyDir() as source):
                return self._empty_dirs.set_up(uid, volume, source)
            case MountVolume(uid, _, HostPath() as source):
                self._directories.make(uid)
                return host_path.set_up(source)
            case UnmountVolume(uid, volume):
                self._empty_dirs.tear_down(uid, volume)
            case RemovePodDirectory(uid):
                self._directories.remove(uid)
        return ""

    def _publish(self, uid: str, cause: str) -> None:
        view = self._reconciler.view(uid)
        if view is None:
            self._mounted.delete(uid, cause)
        elif not self._reconciler.settling(uid):
            self._mounted.put(uid, view, cause)

    async def _in_thread(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._workers, function, *arguments)

    async def _turn_or_change(self) -> None:
        now = self._clock.monotonic()
        next_attempt = self._reconciler.next_attempt(now)
        wait = TURN if next_attempt is None else min(next_attempt - now, TURN)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):  # wait_for may swallow a cancellation before Python 3.12
                await self._changed.wait()


def _name(operation: Operation) -> str:
    return f"{type(operation).__name__} {operation.uid}{operation.volume and '/'}{operation.volume}"


def _text(error: OSError) -> str:
    """As Go words it: the path, then the reason in lower case; our own texts as they are."""
    if error.filename is None:
        return error.strerror or str(error)
    return f"{error.filename}: {(error.strerror or '').lower()}"
