"""Keeps what the files of pods use: begins to measure pods one after the other, each once in a period.

A pod whose files take long to measure is measured less often, so that measuring takes at most a twentieth of the time.
The next pod does not wait for one with a mount that does not answer: that one is not begun again until it returns.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bus.interface import NoAnswerError, RequestRefusedError
from bus.messages.usage import NodeUsage, PodUsage, VolumeUsage
from bus.messages.volume import FoundVolumeUsage, GetVolumeUsage
from services.frame.launch import Context
from services.frame.pod_errors import PodErrors
from services.pleg.adapters.usage_source import FILES_PLACES, UsageSource
from services.pleg.core.mountpoints import Mountpoints
from services.pleg.core.pod_files import PodFiles, with_files, with_runtime_files
from shared.cri.interface import FilesystemFiles, Runtime, RuntimeCallError, RuntimeFilesystems
from shared.frozen_copy import replace

log = logging.getLogger(__name__)

PERIOD_WITHOUT_VOLUMES = 60.0  # seconds between two measurements of logs, where volumes are not measured
PAUSES = 20  # a measurement of 1 s is repeated after 20 s at the earliest
LONGEST_PAUSE = 3600.0  # seconds, also after a measurement that hung for hours
TURN_SECONDS = 2.0  # that the next pod waits for one that is measured
VOLUME_SECONDS = 2.5  # that volume has to answer
VOLUME_REQUESTS = 32  # to volume at the same time
REFRESH_SECONDS = 3.0  # that a request waits for figures


@dataclass(frozen=True)
class _Measured:
    files: PodFiles | None  # None = each measurement failed
    began_at: float
    due: float


class FileUsage:
    """Writable layers and images are as the runtime reports them, once for each round of measurements."""

    def __init__(self, context: Context, runtime: Runtime, source: UsageSource) -> None:
        self._clock, self._runtime, self._source = context.clock, runtime, source
        self._bus = context.bus
        period = context.config.volume_stats_agg_period
        self._volumes = period > 0
        self._period = period if self._volumes else PERIOD_WITHOUT_VOLUMES
        self._errors = PodErrors(log, context.bus.trouble, context.clock)
        self._present: frozenset[str] = frozenset()
        self._measured: dict[str, _Measured] = {}
        self._measuring: dict[str, asyncio.Task[None]] = {}
        self._by_plugins: dict[str, tuple[VolumeUsage, ...]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._requests = asyncio.Semaphore(VOLUME_REQUESTS)
        self._late: set[str] = set()  # pods with a line in the log that they take long
        self._layers: Mapping[str, FilesystemFiles] = {}
        self._runtime_files = RuntimeFilesystems()
        self._round: asyncio.Task[None] | None = None

    def of_node(self, node: NodeUsage) -> NodeUsage:
        """Return the usage with what its images and writable layers use."""
        return with_runtime_files(node, self._runtime_files)

    def of_pod(self, pod: PodUsage, node: NodeUsage, mountpoints: Mountpoints | None) -> PodUsage:
        """Return the usage with that of its files, as far as it was measured; `mountpoints`: of the runtime."""
        measured = self._measured.get(pod.uid)
        files = measured.files if measured else None
        if files is not None and files.measured_by_plugins:
            files = replace(files, volumes=(*files.volumes, *self._by_plugins.get(pod.uid, ())))
        return with_files(pod, files, self._layers, node, mountpoints)

    def begin(self, pods: Sequence[PodUsage]) -> None:
        """Begin to measure the pods that are due; these are all pods."""
        self._present = frozenset(pod.uid for pod in pods)
        for uid in self._measured.keys() - self._present:
            self._forget(uid)
        self._late &= self._present
        now = self._clock.monotonic()
        self._begin(pods, lambda measured: measured.due <= now)

    async def refresh(self, pods: Sequence[PodUsage], max_age_seconds: float) -> None:
        """Measure the pods whose figures are older; return after 3 s at the latest, with what is measured by then."""
        self._present = frozenset(pod.uid for pod in pods)
        oldest = self._clock.monotonic() - max_age_seconds
        try:
            async with asyncio.timeout(REFRESH_SECONDS):
                while (measuring := self._begin(pods, lambda measured: measured.began_at < oldest)) is not None:
                    await asyncio.shield(measuring)
                if self._asking:
                    await asyncio.wait([*self._asking.values()])
        except TimeoutError:
            log.debug("the files of pods take longer than %.0f s to measure", REFRESH_SECONDS)

    def close(self) -> None:
        """Measure no more."""
        for task in (self._round, *self._measuring.values(), *self._asking.values()):
            if task is not None:
                task.cancel()

    def _begin(self, pods: Sequence[PodUsage], is_due: Callable[[_Measured], bool]) -> asyncio.Task[None] | None:
        """Return the round under way, else a new one for the pods that are due; None = none is, or no place is free. A
        pod that has ended since the caller's list was read is left out: its figures are not kept."""
        if self._round is None or self._round.done():
            present = [pod for pod in pods if pod.uid in self._present] if self._has_place() else []
            idle = [pod for pod in present if pod.uid not in self._measuring]
            due = [pod for pod in idle if (old := self._measured.get(pod.uid)) is None or is_due(old)]
            self._round = asyncio.create_task(self._measure(due), name="measure files") if due else None
        return self._round

    def _has_place(self) -> bool:
        return len(self._measuring) < FILES_PLACES

    async def _measure(self, pods: Sequence[PodUsage]) -> None:
        try:
            self._layers = await self._runtime.writable_layers()
            self._runtime_files = await self._runtime.filesystems()
        except RuntimeCallError as error:  # the relists report it
            log.debug("could not read the use of writable layers and images: %s", error)
        for pod in pods:
            if not self._has_place():
                return  # a later round measures the others
            done, _ = await asyncio.wait({self._begin_pod(pod)}, timeout=TURN_SECONDS)
            if done:
                self._late.discard(pod.uid)
            elif pod.uid not in self._late:
                self._late.add(pod.uid)
                text = "measuring the files of pod %s/%s (%s) takes longer than %.0f s: its figures stay the last ones"
                text += " until that ends; see whether a file system that is mounted in its volumes answers"
                log.warning(text, pod.namespace, pod.name, pod.uid, TURN_SECONDS)

    def _begin_pod(self, pod: PodUsage) -> asyncio.Task[None]:
        measuring = asyncio.create_task(self._measure_pod(pod), name=f"measure files of pod {pod.uid}")
        self._measuring[pod.uid] = measuring
        measuring.add_done_callback(lambda _: self._measuring.pop(pod.uid, None))
        return measuring

    async def _measure_pod(self, pod: PodUsage) -> None:
        began_at = self._clock.monotonic()
        old = self._measured.get(pod.uid)
        files = old.files if old else None
        with self._errors.contained(pod.uid, "the measurement of its files"):
            files = await self._source.measure(pod, volumes=self._volumes)
        took = self._clock.monotonic() - began_at
        due = began_at + max(self._period, min(PAUSES * took, took + LONGEST_PAUSE))
        self._measured[pod.uid] = _Measured(files, began_at, due)
        if pod.uid not in self._present:
            self._forget(pod.uid)
        elif files is not None and files.measured_by_plugins and pod.uid not in self._asking:
            self._asking[pod.uid] = asyncio.create_task(self._ask_volume(pod.uid), name=f"volumes of pod {pod.uid}")
            self._asking[pod.uid].add_done_callback(lambda _: self._asking.pop(pod.uid, None))

    async def _ask_volume(self, uid: str) -> None:
        """Store the usage that volume reads; without its answer the volumes have none. No measurement waits for it."""
        found: tuple[VolumeUsage, ...] = ()
        async with self._requests:
            try:
                request = GetVolumeUsage(uid=uid)
                found = (await self._bus.ask("volume", request, FoundVolumeUsage, VOLUME_SECONDS)).volumes
            except (NoAnswerError, RequestRefusedError) as error:
                log.debug("the usage of volumes of pod %s is not known: %s", uid, error)
        if uid in self._present:
            self._by_plugins[uid] = found

    def _forget(self, uid: str) -> None:
        self._measured.pop(uid, None)
        self._by_plugins.pop(uid, None)
        self._errors.forget(uid)
