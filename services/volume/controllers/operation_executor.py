"""Runs operations: requests their content, waits for a turn, performs them in a thread and reports the outcome to the
reconciler.

Each kind has threads of its own, so that a call that hangs or takes long delays no operation of another kind. An
exception leads to a retry for the pod whose operation raised it, and affects no other pod.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial

from bus.messages.event import KubeEvent
from services.frame.launch import Context
from services.volume.adapters.atomic_writer import KEPT_SECONDS
from services.volume.adapters.cluster_content import ClusterContent
from services.volume.adapters.recent_mounts import RecentMounts
from services.volume.adapters.threads import Call, HungError, ReservedThread, Threads
from services.volume.controllers.volume_expansion import VolumeExpansion
from services.volume.controllers.volume_metrics import VolumeMetrics
from services.volume.core.files.payload import ContentError, SetUpInputs
from services.volume.core.operations.mount_shares import Share
from services.volume.core.operations.operations import (
    ExpandVolume,
    Kind,
    MountDevice,
    MountVolume,
    Operation,
    UnmountDevice,
    UnmountVolume,
    kind_of,
    needs_content,
)
from services.volume.core.operations.outcome import WAIT_FOR_ATTACH, Outcome
from services.volume.core.reconciler import Reconciler
from services.volume.core.specs.csi_volume import driver_of
from services.volume.core.specs.expansion import ExpansionError, ExpansionFailure
from services.volume.core.specs.volume_spec import VolumeSpec
from services.volume.plugins.plugin import AttachError
from services.volume.plugins.plugin_calls import PluginCalls, error_text
from shared.files.tree_removal import RemovalPausedError, RemovalProgress
from shared.pods.failures import PodFailures
from shared.process.crash import crash_point
from shared.process.deadlines import work_on

log = logging.getLogger(__name__)

# Operations of each kind that run at the same time. Checks of hostPaths that hang take at most the share of their mount
# (core/operations/mount_shares.py), so that 32 mounts may hang before others have to wait. Local operations wait for
# the journal of the file system, each for itself.
MAX_OPERATIONS = {Kind.LOCAL: 16, Kind.HOST_PATH: 64, Kind.DEVICE: 16, Kind.REMOVAL: 4}
MAX_CALLS_PER_DRIVER = 4  # of the operations on devices
MAX_OWNERSHIP_CHANGES = (
    64  # how many changes of the group of all files of a volume run at once; each takes as long as there are files
)
MAX_OWNERSHIP_CHANGES_PER_DRIVER = 16  # of these
MAX_UNMOUNTS = 64  # how many unmounts run at once that wait for a driver or a server
MAX_UNMOUNTS_PER_DRIVER = 16  # of these, for a driver, or for all volumes of a plugin without drivers
HOST_PATH_TIMEOUT_SECONDS = 10.0  # for the look at a hostPath; a network file system that answers does so sooner
REMOVAL_TURN_SECONDS = 2.0  # after which a removal gives its place to one that waits, and waits for its next turn
REMOVAL_TIMEOUT_SECONDS = 10.0  # for a removal to pause; an unmount of a file system that answers returns sooner
MAX_SPARE_REMOVALS = 16  # that do not return and keep a thread without taking a place
MAX_SUBPATHS = 8
MAX_HOST_SUBPATHS = 64
MAX_RELEASES = 4
SUBPATH_TIMEOUT_SECONDS = 4.0  # podsync waits longer for the answer
MAX_LOOKS = 2
REPORT_AFTER_SECONDS = 30.0  # a call that is still under way then is reported
_REPORTED_ENTRIES = 100_000  # the reported number of removed entries is a multiple of this, so that it seldom changes


class OperationExecutor:
    """Runs the operations that the reconciler decides. `on_end` is called after each with the events to record and the
    UIDs of the pods that it concerns, None = every pod."""

    def __init__(
        self,
        context: Context,
        reconciler: Reconciler,
        calls: PluginCalls,
        content: ClusterContent,
        failures: PodFailures,
        metrics: VolumeMetrics,
        expansion: VolumeExpansion,
    ) -> None:
        clock = self._clock = context.clock
        self._deadlines, self._tracer = context.deadlines, context.tracer
        self.calls, self._reconciler, self._content = calls, reconciler, content
        self._failures, self._metrics, self._expansion = failures, metrics, expansion
        self.on_end: Callable[[Iterable[KubeEvent], Iterable[str] | None], None] = lambda _, __: None
        # Operations wait for their turn here and not in the thread pool: when its turn comes, an operation is decided
        # again and runs at once.
        timeout = {Kind.HOST_PATH: HOST_PATH_TIMEOUT_SECONDS, Kind.REMOVAL: REMOVAL_TIMEOUT_SECONDS}
        spare = {Kind.REMOVAL: MAX_SPARE_REMOVALS}
        self._threads = {
            kind: Threads(kind, places, clock, timeout.get(kind), spare.get(kind, 0))
            for kind, places in MAX_OPERATIONS.items()
        }
        self._unmounts = Threads("unmount", MAX_UNMOUNTS, clock, REMOVAL_TIMEOUT_SECONDS, MAX_SPARE_REMOVALS)
        self._ownership = Threads("ownership", MAX_OWNERSHIP_CHANGES, clock)
        self._mounts = RecentMounts(clock)
        self.subpaths = Threads("subPath", MAX_SUBPATHS, clock, SUBPATH_TIMEOUT_SECONDS)
        self._host_subpaths = Threads("subPath of a hostPath", MAX_HOST_SUBPATHS, clock, SUBPATH_TIMEOUT_SECONDS)
        self.releases = Threads("release of subPaths", MAX_RELEASES, clock, SUBPATH_TIMEOUT_SECONDS)
        self.looks = Threads("look", MAX_LOOKS, clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._gathering: dict[MountVolume | MountDevice, asyncio.Task[SetUpInputs]] = {}
        self._removals: dict[Operation, Call] = {}  # under way, each since its first turn

    def start(self, operation: Operation) -> None:
        """Start an operation, which the reconciler counts as running already."""
        log.debug("starting %s", _name(operation))
        task = asyncio.create_task(self._run(operation), name=f"{type(operation).__name__} {operation.uid}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def host_subpath_turn(self, root: str) -> AbstractAsyncContextManager[ReservedThread]:
        """Return a turn for a subPath of the hostPath `root`, on which a call may hang."""
        return self._host_subpaths.turn(root, self._mounts.share(root))

    def cancel_requests_not_due(self) -> None:
        """Cancel the requests for content of volumes that no pod needs any more, so that their teardown need not
        wait."""
        for operation, gathering in self._gathering.items():
            if not self._is_due(operation):
                gathering.cancel()

    def slow(self) -> list[str]:
        """Return one text for each call or removal that hangs or has been under way for `REPORT_AFTER_SECONDS`; the
        oldest is the first."""
        now = self._clock.monotonic()
        removals = [(REPORT_AFTER_SECONDS, call) for call in self._removals.values()]
        calls = sorted([*self._calls(), *removals], key=lambda call: call[1].began)
        return [_slow_text(call) for limit, call in calls if now - call.began >= limit]

    async def close(self) -> None:
        """Cancel all operations; mounts stay as they are."""
        for task in self._tasks:
            task.cancel()
        await self._content.close()
        for threads in self._every_threads():
            threads.close()

    def _every_threads(self) -> list[Threads]:
        return [
            *self._threads.values(),
            self._unmounts,
            self._ownership,
            self.subpaths,
            self._host_subpaths,
            self.releases,
            self.looks,
        ]

    def _calls(self) -> Iterator[tuple[float, Call]]:
        for threads in self._every_threads():
            limit = REPORT_AFTER_SECONDS if threads.timeout is None else threads.timeout
            yield from ((limit, call) for call in list(threads.calls.values()))

    def _is_due(self, operation: Operation) -> bool:
        return self._decide(self._reconciler.still_due, operation)

    def _decide(self, decide: Callable[[Operation, float], bool], operation: Operation) -> bool:
        try:
            return decide(operation, self._clock.monotonic())
        except Exception as error:
            self._note(operation, error)
            return False

    async def _run(self, operation: Operation) -> None:
        events: Iterable[KubeEvent] = ()
        concerned = self._reconciler.concerned(operation)  # afterwards it may share no device any more
        work = self._deadlines.begin(f"{_what(operation)} of pod {operation.uid}")
        work_on(work)
        try:
            with self._tracer.span(type(operation).__name__, pod=operation.uid) as span:
                span.set("bulkhead.volume", operation.volume)
                events = await self._attempt(operation)
        except Exception as error:  # it affects no other pod, and the operation is tried again
            self._note(operation, error)
            self._reconciler.abandoned(operation)
        finally:
            work.ended()
        self.on_end(events, {*concerned, *self._reconciler.concerned(operation)})

    async def _attempt(self, operation: Operation) -> Iterable[KubeEvent]:
        gathered: SetUpInputs | None = SetUpInputs()
        began = self._clock.monotonic()
        if isinstance(operation, ExpandVolume):
            volume = self._reconciler.actual.get(operation.uid, operation.volume)
            again = volume is not None and volume.expansion_failed
            outcome = await self._expansion.run(operation, again, partial(self._outcome, operation))
        else:
            if isinstance(operation, MountVolume | MountDevice) and needs_content(operation):
                gathered = await self._gather(operation, operation.spec)
            outcome = await self._outcome(operation, gathered)
        if outcome is None:
            log.info("%s is not performed now: it is not due, or an unmount goes first", _name(operation))
            self._reconciler.abandoned(operation)
            return ()
        self._metrics.ended(operation, outcome, self._clock.monotonic() - began)
        return self._ended(operation, outcome)

    async def _outcome(self, operation: Operation, gathered: SetUpInputs | None) -> Outcome | None:
        """Perform the operation and return how it ended; None = it is not to be performed now."""
        try:
            outcome = await self._in_turns(operation, gathered)
        except HungError as hung:
            outcome = Outcome(error=f"{_check(operation)}{hung}", under_way=hung.under_way)
        except ContentError as failure:
            outcome = Outcome(error=str(failure), kind=failure.kind)
        except OSError as failure:
            kind = failure.kind if isinstance(failure, ExpansionError) else ExpansionFailure.FINAL
            step = WAIT_FOR_ATTACH if isinstance(failure, AttachError) else ""
            outcome = Outcome(error=error_text(failure), expansion=kind, step=step)
        except Exception as failure:
            self._note(operation, failure)
            outcome = Outcome(error=f"unexpected {type(failure).__name__}")
        else:
            self._failures.ended(operation.uid, _what(operation))
        return outcome

    async def _in_turns(self, operation: Operation, gathered: SetUpInputs | None) -> Outcome | None:
        """Perform the operation in one or several turns, because a long removal takes turns with others. Return None if
        it is not to be performed. It is decided again at each turn, except for an unmount that has begun to remove: the
        directory of a pod, in contrast, may be a new one by then."""
        removed, begun = RemovalProgress(), False
        try:
            while True:
                async with self._turn(operation) as turn:
                    goes_on = begun and isinstance(operation, UnmountVolume)
                    if gathered is None or not (goes_on or self._decide(self._reconciler.perform, operation)):
                        return None
                    begun = True
                    try:
                        outcome, rest = await self._perform(operation, gathered, removed, turn)
                        break
                    except RemovalPausedError:
                        removed.pause = False
        finally:
            self._removals.pop(operation, None)
        if rest is not None:
            async with self._ownership.turn(
                self.calls.directory(operation.uid), _share_of_ownership(operation)
            ) as turn:
                await turn.call(f"{_what(operation)} of pod {self._described(operation.uid)}, its fsGroup,", rest)
        return outcome

    def _turn(self, operation: Operation) -> AbstractAsyncContextManager[ReservedThread]:
        threads = self._threads[kind := kind_of(operation)]
        match kind:
            case Kind.LOCAL:
                return threads.turn()
            case Kind.HOST_PATH:
                path = _path(operation)
                return threads.turn(path, self._mounts.share(path))
            case Kind.DEVICE:
                return threads.turn(_unique_name(operation), _share(operation))
            case Kind.REMOVAL:
                share = self._share_of_removal(operation)
                return (self._unmounts if share else threads).turn(self.calls.directory(operation.uid), share)

    def _share_of_removal(self, operation: Operation) -> Share | None:
        """Return the share of the threads that all unmounts of this driver, or of this type of volume with a server
        such as nfs, may occupy together; None = there is no limit of their own."""
        plugin = operation.volume.rpartition("/")[0]
        volume = self._reconciler.actual.get(operation.uid, operation.volume)
        if volume is None or not plugin:
            return None
        driver = volume.spec.served_by if volume.spec is not None else driver_of(volume.unique_name)
        return Share(driver or plugin, MAX_UNMOUNTS_PER_DRIVER)

    async def _gather(self, operation: MountVolume | MountDevice, spec: VolumeSpec) -> SetUpInputs | None:
        """Request the content from other processes and return it. No place is taken, because it may take long. None =
        the request was cancelled."""
        gathering = self._gathering[operation] = asyncio.create_task(self._content.gather(spec))
        try:
            await asyncio.wait({gathering})
        finally:
            del self._gathering[operation]
            gathering.cancel()
        return None if gathering.cancelled() else gathering.result()

    async def _perform(
        self, operation: Operation, gathered: SetUpInputs, removed: RemovalProgress, turn: ReservedThread
    ) -> tuple[Outcome, Callable[[], None] | None]:
        """Perform the operation in a thread; return how it ended, and what remains to be done without a driver."""
        crash_point(f"volume.calling.{type(operation).__name__}")
        what = f"{_what(operation)} of pod {self._described(operation.uid)}"
        if kind_of(operation) is Kind.REMOVAL:
            self._removals.setdefault(operation, Call(what, "", self._clock.monotonic(), removed))
        pausing = asyncio.get_running_loop().call_later(REMOVAL_TURN_SECONDS, removed.ask_to_pause)
        try:
            performed = await turn.call(
                what,
                self.calls.perform,
                operation,
                gathered,
                removed,
                removed=removed,
                late=lambda: self._returned(operation),
            )
        finally:
            pausing.cancel()
        crash_point(f"volume.acted.{type(operation).__name__}")
        if removed.entries >= _REPORTED_ENTRIES:
            log.info("%s removed %d entries", _name(operation), removed.entries)
        # Rounded up to a full second: each such moment is a look at every pod, and one object may be shown by many.
        old_files_at = math.ceil(self._clock.monotonic() + KEPT_SECONDS)
        outcome = Outcome(
            host_path=performed.host_path,
            takes_labels=performed.takes_labels,
            versions=gathered.versions,
            refresh_at=gathered.refresh_at,
            old_files_at=old_files_at if performed.has_old_files else None,
        )
        return outcome, performed.rest

    def _returned(self, operation: Operation) -> None:
        """Note that a call that hung has returned, after its operation had failed."""
        self._reconciler.returned(operation)
        self.on_end((), None)

    def _ended(self, operation: Operation, outcome: Outcome) -> Iterable[KubeEvent]:
        if isinstance(operation, UnmountVolume):
            self._content.forget(operation.uid)
        done = self._reconciler.done(operation, self._clock.monotonic(), outcome)
        if not outcome.error:
            log.info("%s done", _name(operation))
            return done.events
        log.log(
            logging.INFO if done.quiet else logging.WARNING,
            "Operation for %s failed. Next retry in %.1f s. Error: %s",
            _name(operation),
            done.retry_in,
            outcome.error,
        )
        return done.events

    def _note(self, operation: Operation, error: Exception) -> None:
        """Note a programming error, and log it the first time."""
        if self._failures.failed(operation.uid, _what(operation), error, self._clock.monotonic()):
            log.error("%s failed unexpectedly", _name(operation), exc_info=error)

    def _described(self, uid: str) -> str:
        pod = self._reconciler.desired.pods.get(uid)
        return f"{pod.namespace}/{pod.name} ({uid})" if pod is not None else uid


def _name(operation: Operation) -> str:
    target = "/".join(part for part in (operation.uid, operation.volume) if part)
    return f"{type(operation).__name__} {target}"


def _what(operation: Operation) -> str:
    return f"{type(operation).__name__}{operation.volume and ' '}{operation.volume}"


def _unique_name(operation: Operation) -> str:
    return operation.spec.unique_name if isinstance(operation, MountVolume | ExpandVolume) else operation.volume


def _share(operation: Operation) -> Share | None:
    """Return how many places the calls of one driver may occupy: a driver that hangs leaves places for the others."""
    if isinstance(operation, UnmountDevice):
        return Share(driver_of(operation.volume) or operation.plugin, MAX_CALLS_PER_DRIVER)
    server = operation.spec.served_by if isinstance(operation, MountVolume | MountDevice | ExpandVolume) else ""
    return Share(server, MAX_CALLS_PER_DRIVER) if server else None


def _share_of_ownership(operation: Operation) -> Share | None:
    """Return how many places the changes of groups on volumes of one driver or server may occupy: one that hangs leaves
    places for the others."""
    server = operation.spec.served_by if isinstance(operation, MountVolume | MountDevice) else ""
    return Share(server, MAX_OWNERSHIP_CHANGES_PER_DRIVER) if server else None


def _path(operation: Operation) -> str:
    return operation.spec.node_path if isinstance(operation, MountVolume) else ""


def _check(operation: Operation) -> str:
    check = operation.spec.node_check if isinstance(operation, MountVolume) else ""
    return f"{check} failed: " if check else ""


def _slow_text(call: Call) -> str:
    if call.path:
        return f"{call.what}: {call.path} does not answer"
    entries = call.removed.entries // _REPORTED_ENTRIES * _REPORTED_ENTRIES
    return f"{call.what} takes long{f', {entries} entries are removed' if entries else ''}"
