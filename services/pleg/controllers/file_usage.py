"""Keeps what the files of pods use: measures pods one after the other, each once in a period.
The files of a pod are counted in turns, for which pods wait in a queue. After each turn the pod has the figures of what
was counted so far, so that it exceeds its limits even if it keeps the count from ending. Such a sum includes files that
the pod removes after they were counted, and lacks files that it adds in counted directories. So a count has no pauses,
and one that lasts too long is given up: the next one has twice the time, because the tree may just be large. Between
two counts a pod rests 19 times as long as the last one took, and at most an hour where that one ended. A pod with a
mount that does not answer delays no other pod: its next count begins after the present one returns.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from bus.interface import NoAnswerError, RequestRefusedError
from bus.messages.usage import NodeUsage, PodUsage, VolumeUsage
from bus.messages.volume import FoundVolumeUsage, GetVolumeUsage
from services.frame.launch import Context
from services.frame.pod_errors import PodErrors
from services.pleg.adapters.usage_source import MAX_COUNTS, FilesCount, UsageSource
from services.pleg.core.mountpoints import Mountpoints
from services.pleg.core.pod_files import PodFiles, at_least, with_files, with_runtime_files
from shared.cri.interface import FilesystemFiles, Runtime, RuntimeCallError, RuntimeFilesystems
from shared.model.frozen_copy import replace

log = logging.getLogger(__name__)

PERIOD_WITHOUT_VOLUMES_SECONDS = 60.0  # between two measurements of logs, where volumes are not measured
PAUSE_FACTOR = 20  # a measurement of 1 s is repeated after 20 s at the earliest
MAX_PAUSE_SECONDS = 3600.0  # also after a measurement that hung for hours
MAX_NEXT_SECONDS = 2.0  # for which the next pod waits for the one that is measured
TURN_SECONDS = 1.0  # of counting the files of a pod before the next one in the queue has its turn
LONG_SECONDS = 600.0  # of counting, or twice as long as the last time, after which a count is given up
MAX_COUNT_SECONDS = 2400.0
LONG_PODS = 4  # pods whose last count was given up; more such pods together get as much time as these
MAX_VOLUME_SECONDS = 2.5  # for the answer of volume
MAX_VOLUME_REQUESTS = 32  # to volume at the same time
MAX_REFRESH_SECONDS = 3.0  # for which a request waits for figures


class _Measured(Struct, frozen=True):
    files: PodFiles | None  # None = each measurement failed
    counted: PodFiles | None  # by the last count alone, whether it ended or was given up
    began_at: float
    took: float = 0.0  # seconds of counting
    due: float = 0.0  # monotonic seconds of the next measurement; a pod in FileUsage._long may wait longer


class FileUsage:
    """Measures pods. The runtime reports the use of writable layers and images, once for each round of measurements."""

    def __init__(self, context: Context, runtime: Runtime, source: UsageSource) -> None:
        self._clock, self._runtime, self._source = context.clock, runtime, source
        self._bus = context.bus
        period = context.config.volume_stats_agg_period
        self._volumes = period > 0
        self._period = period if self._volumes else PERIOD_WITHOUT_VOLUMES_SECONDS
        self._errors = PodErrors(log, context.bus.trouble, context.clock)
        self._present: frozenset[str] = frozenset()
        self._measured: dict[str, _Measured] = {}
        self._measuring: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(MAX_COUNTS)
        self._begun: set[str] = set()  # pods that had a turn, until they are measured
        self._long: set[str] = set()  # pods whose last count was given up
        self._by_plugins: dict[str, tuple[VolumeUsage, ...]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._requests = asyncio.Semaphore(MAX_VOLUME_REQUESTS)
        self._late: set[str] = set()  # pods whose long measurement was logged
        self._layers: Mapping[str, FilesystemFiles] = {}
        self._runtime_files = RuntimeFilesystems()
        self._round: asyncio.Task[None] | None = None

    def add_to_node(self, node: NodeUsage) -> NodeUsage:
        """Return the usage with what its images and writable layers use."""
        return with_runtime_files(node, self._runtime_files)

    def add_to_pod(self, pod: PodUsage, node: NodeUsage, mountpoints: Mountpoints | None) -> PodUsage:
        """Return the usage with that of its files, as far as it was measured; `mountpoints`: of the runtime."""
        files = self._files(pod.uid)
        if files is not None and files.measured_by_plugins:
            files = replace(files, volumes=(*files.volumes, *self._by_plugins.get(pod.uid, ())))
        return with_files(pod, files, self._layers, node, mountpoints)

    def begin(self, pods: Sequence[PodUsage]) -> None:
        """Begin to measure those of all `pods` that are due."""
        self._present = frozenset(pod.uid for pod in pods)
        for uid in self._measured.keys() - self._present:
            self._forget(uid)
        self._late &= self._present
        now = self._clock.monotonic()
        self._begin(pods, lambda uid, measured: self._is_rested(uid, measured, now) and measured.due <= now)

    async def refresh(self, pods: Sequence[PodUsage], max_age_seconds: float) -> None:
        """Measure the pods whose figures are older; return after 3 s at the latest, with what is measured by then."""
        self._present = frozenset(pod.uid for pod in pods)
        now = self._clock.monotonic()
        oldest = now - max_age_seconds

        def is_due(uid: str, measured: _Measured) -> bool:
            return measured.began_at < oldest and self._is_rested(uid, measured, now)

        try:
            async with asyncio.timeout(MAX_REFRESH_SECONDS):
                while (measuring := self._begin(pods, is_due)) is not None:
                    await asyncio.shield(measuring)
                if self._asking:
                    await asyncio.wait([*self._asking.values()])
        except TimeoutError:
            log.debug("the files of pods take longer than %.0f s to measure", MAX_REFRESH_SECONDS)

    def close(self) -> None:
        """End all measurements."""
        for task in (self._round, *self._measuring.values(), *self._asking.values()):
            if task is not None:
                task.cancel()

    def _files(self, uid: str) -> PodFiles | None:
        measured = self._measured.get(uid)
        return measured.files if measured else None

    def _begin(self, pods: Sequence[PodUsage], is_due: Callable[[str, _Measured], bool]) -> asyncio.Task[None] | None:
        """Return the round under way, else a new one for the pods that are due; None = no pod is due. A pod that has
        ended since the caller's list was read is left out, because its figures are not kept."""
        if self._round is None or self._round.done():
            present = [pod for pod in pods if pod.uid in self._present]
            idle = [pod for pod in present if pod.uid not in self._measuring]
            due = [pod for pod in idle if (old := self._measured.get(pod.uid)) is None or is_due(pod.uid, old)]
            self._round = asyncio.create_task(self._measure(due), name="measure files") if due else None
        return self._round

    def _is_rested(self, uid: str, measured: _Measured, now: float) -> bool:
        """Return whether the pod may be counted again, also at a request for newer figures: one whose last count was
        given up rests, so that all such pods together take as much of the time as LONG_PODS of them."""
        rest = (PAUSE_FACTOR - 1) * measured.took * max(1.0, len(self._long) / LONG_PODS)
        return uid not in self._long or measured.began_at + measured.took + rest <= now

    async def _measure(self, pods: Sequence[PodUsage]) -> None:
        try:
            self._layers = await self._runtime.writable_layers()
            self._runtime_files = await self._runtime.filesystems()
        except RuntimeCallError as error:  # the relists report it
            log.debug("could not read the use of writable layers and images: %s", error)
        for pod in pods:
            done, _ = await asyncio.wait({self._begin_pod(pod)}, timeout=MAX_NEXT_SECONDS)
            if done:
                self._late.discard(pod.uid)
            elif pod.uid in self._begun and pod.uid not in self._late:
                self._late.add(pod.uid)
                text = "measuring the files of pod %s/%s (%s) takes longer than %.0f s: until that ends its figures are"
                text += " the last ones, or what is counted so far where that is more; see how many files its volumes"
                text += " have, and whether a file system that is mounted in them answers"
                log.warning(text, pod.namespace, pod.name, pod.uid, MAX_NEXT_SECONDS)

    def _begin_pod(self, pod: PodUsage) -> asyncio.Task[None]:
        measuring = asyncio.create_task(self._measure_pod(pod), name=f"measure files of pod {pod.uid}")
        self._measuring[pod.uid] = measuring
        measuring.add_done_callback(lambda _: self._end_pod(pod.uid))
        return measuring

    def _end_pod(self, uid: str) -> None:
        self._measuring.pop(uid, None)
        self._begun.discard(uid)

    async def _measure_pod(self, pod: PodUsage) -> None:
        began_at = self._clock.monotonic()
        old = self._measured.get(pod.uid) or _Measured(None, None, began_at)
        limit = max(LONG_SECONDS, min(2 * old.took, MAX_COUNT_SECONDS))
        measured, complete = replace(old, began_at=began_at, took=0.0), False
        count = self._source.count_files(pod, volumes=self._volumes)
        with self._errors.contained(pod.uid, "the measurement of its files"):
            while not complete and measured.took <= limit and pod.uid in self._present:
                seconds, complete = await self._take_turn(pod.uid, count)
                counted = count.sum_up()
                files = counted if complete else at_least(counted, old.counted)
                measured = replace(measured, files=files, counted=counted, took=measured.took + seconds)
                self._measured[pod.uid] = measured
        count.close()  # also after an error, but not at the end of the process, when a thread may still count
        took = measured.took
        due = began_at + max(self._period, min(PAUSE_FACTOR * took, took + MAX_PAUSE_SECONDS))
        self._measured[pod.uid] = replace(measured, due=due)
        if took > limit and not complete:
            self._long.add(pod.uid)
        else:
            self._long.discard(pod.uid)
        if pod.uid not in self._present:
            self._forget(pod.uid)
        elif measured.counted is not None and measured.counted.measured_by_plugins and pod.uid not in self._asking:
            self._asking[pod.uid] = asyncio.create_task(self._ask_volume(pod.uid), name=f"volumes of pod {pod.uid}")
            self._asking[pod.uid].add_done_callback(lambda _: self._asking.pop(pod.uid, None))

    async def _take_turn(self, uid: str, count: FilesCount) -> tuple[float, bool]:
        """Count once a place is free; return the seconds, and whether everything is counted."""
        async with self._places:
            began_at = self._clock.monotonic()
            self._begun.add(uid)
            complete = await count.count(TURN_SECONDS)
            return self._clock.monotonic() - began_at, complete

    async def _ask_volume(self, uid: str) -> None:
        """Request and store the usage that volume reads; without its answer the volumes have none. No measurement waits
        for it."""
        volumes: tuple[VolumeUsage, ...] = ()
        async with self._requests:
            try:
                request = GetVolumeUsage(uid=uid)
                volumes = (await self._bus.ask("volume", request, FoundVolumeUsage, MAX_VOLUME_SECONDS)).volumes
            except (NoAnswerError, RequestRefusedError) as error:
                log.debug("the usage of volumes of pod %s is not known: %s", uid, error)
        if uid in self._present:
            self._by_plugins[uid] = volumes

    def _forget(self, uid: str) -> None:
        self._measured.pop(uid, None)
        self._long.discard(uid)
        self._by_plugins.pop(uid, None)
        self._errors.forget(uid)
