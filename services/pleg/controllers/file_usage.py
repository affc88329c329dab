"""Keeps what the files of pods use: measures pods one after the other, each once in a period.

A pod whose files take long to measure is measured less often, so that measuring takes at most a twentieth of the time.
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
from services.pleg.adapters.usage_source import UsageSource
from services.pleg.core.pod_files import PodFiles, with_files, with_images
from shared.cri.interface import FilesystemFiles, Runtime, RuntimeCallError
from shared.frozen_copy import replace

log = logging.getLogger(__name__)

PERIOD_WITHOUT_VOLUMES = 60.0  # seconds between two measurements of logs, where volumes are not measured
PAUSES = 20  # a measurement of 1 s is repeated after 20 s at the earliest
VOLUME_SECONDS = 2.5  # that volume has to answer
REFRESH_SECONDS = 3.0  # that a request waits for figures


@dataclass(frozen=True)
class _Measured:
    files: PodFiles
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
        self._measured: dict[str, _Measured] = {}
        self._layers: Mapping[str, FilesystemFiles] = {}
        self._images: FilesystemFiles | None = None
        self._round: asyncio.Task[None] | None = None

    def of_node(self, node: NodeUsage) -> NodeUsage:
        """Return the usage with what its images use."""
        return with_images(node, self._images)

    def of_pod(self, pod: PodUsage, node: NodeUsage, imagefs: str | None) -> PodUsage:
        """Return the usage with that of its files, as far as it was measured; `imagefs`: mount point of the images."""
        measured = self._measured.get(pod.uid)
        return with_files(pod, measured.files if measured else None, self._layers, node, imagefs)

    def begin(self, pods: Sequence[PodUsage]) -> None:
        """Begin to measure the pods that are due; these are all pods."""
        for uid in self._measured.keys() - {pod.uid for pod in pods}:
            del self._measured[uid]
            self._errors.forget(uid)
        now = self._clock.monotonic()
        self._begin(pods, lambda measured: measured.due <= now)

    async def refresh(self, pods: Sequence[PodUsage], max_age_seconds: float) -> None:
        """Measure the pods whose figures are older; return after 3 s at the latest, with what is measured by then."""
        oldest = self._clock.monotonic() - max_age_seconds
        try:
            async with asyncio.timeout(REFRESH_SECONDS):
                while (measuring := self._begin(pods, lambda measured: measured.began_at < oldest)) is not None:
                    await asyncio.shield(measuring)
        except TimeoutError:
            log.debug("the files of pods take longer than %.0f s to measure", REFRESH_SECONDS)

    async def _of_plugins(self, uid: str) -> tuple[VolumeUsage, ...]:
        """The usage that volume reads; without its answer the volumes have none."""
        try:
            request = GetVolumeUsage(uid=uid)
            return (await self._bus.ask("volume", request, FoundVolumeUsage, VOLUME_SECONDS)).volumes
        except (NoAnswerError, RequestRefusedError) as error:
            log.debug("the usage of volumes of pod %s is not known: %s", uid, error)
            return ()

    def close(self) -> None:
        """Measure no more."""
        if self._round is not None:
            self._round.cancel()

    def _begin(self, pods: Sequence[PodUsage], is_due: Callable[[_Measured], bool]) -> asyncio.Task[None] | None:
        """Return the round under way, else a new one for the pods that are due; None = none is."""
        if self._round is None or self._round.done():
            due = [pod for pod in pods if (old := self._measured.get(pod.uid)) is None or is_due(old)]
            self._round = asyncio.create_task(self._measure(due), name="measure files") if due else None
        return self._round

    async def _measure(self, pods: Sequence[PodUsage]) -> None:
        try:
            self._layers = await self._runtime.writable_layers()
            self._images = next(iter(await self._runtime.image_fs_usage()), None)
        except RuntimeCallError as error:  # the relists report it
            log.debug("could not read the use of writable layers and images: %s", error)
        for pod in pods:
            began_at = self._clock.monotonic()
            with self._errors.contained(pod.uid, "the measurement of its files"):
                files = await self._source.measure(pod, volumes=self._volumes)
                if files.measured_by_plugins:
                    files = replace(files, volumes=(*files.volumes, *await self._of_plugins(pod.uid)))
                took = self._clock.monotonic() - began_at
                due = began_at + max(self._period, PAUSES * took)
                self._measured[pod.uid] = _Measured(files, began_at, due)
