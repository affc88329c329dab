"""Runs the periodic work of podsync that is about no single pod: cgroups of node, QoS classes and daemons, rotation of
logs, removal of what deleted pods and images left.
Connects this work to the core's state: a pod counts as gone only once sources and runtime are complete and fresh.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, KeysView, Set
from pathlib import Path

from bus.messages.podsync import PodState
from bus.stream import EventRecorder
from services.frame.launch import Context
from services.podsync.adapters.calls.runtime_calls import RuntimeCalls
from services.podsync.adapters.logs.log_clean_up import LogCleanUp
from services.podsync.controllers.image_collection import ImageCollection
from services.podsync.controllers.log_rotation import LogRotation
from services.podsync.controllers.memory_throttles import MemoryThrottles, Running
from services.podsync.controllers.node_cgroups import NodeCgroups
from services.podsync.controllers.process_placement import ProcessPlacement
from services.podsync.controllers.runtime_answers import RuntimeAnswers
from services.podsync.core.images.image_collection import names_of
from services.podsync.core.log_rotation import LogLimits, is_ours_alone, written_logs
from services.podsync.core.machine import PodSync
from shared.cri.interface import Runtime, RuntimeCallError
from shared.model.runtime import ContainerState

log = logging.getLogger(__name__)

PRUNE_SECONDS = 300.0  # as the period of the kubelet's image garbage collection
CLEAN_UP_SECONDS = 60.0
_OVER = (PodState.TERMINATED, PodState.FINISHED)


class Housekeeping:
    """Runs the periodic work. `all_known` is set once the streams of sources and runtime were complete in this
    process."""

    def __init__(
        self,
        *,
        context: Context,
        runtime: Runtime,
        calls: RuntimeCalls,
        core: PodSync,
        events: EventRecorder,
    ) -> None:
        config, clock, trouble = context.config, context.clock, context.bus.trouble
        self._core, self._trouble = core, trouble
        self.all_known = asyncio.Event()
        self._all_observed = asyncio.Event()  # whether this process has seen in the runtime each pod that may run
        self._unobserved = ""  # the UID of a pod that was not seen yet, so that an event does not look at all pods
        answers, record = RuntimeAnswers(context.bus), events.record
        self._cgroups = NodeCgroups(calls.cgroups, config, core.active_pods, self._known, record, trouble, answers)
        self._throttles = MemoryThrottles(calls.cgroups, runtime, self._running)
        self._placement = ProcessPlacement(config, calls.cgroups.hierarchies, trouble)
        limits = LogLimits(size=config.container_log_max_size, files=config.container_log_max_files)
        self._rotation = LogRotation(runtime, clock, limits, config.container_log_max_workers, self._written_logs)
        self._images = calls.pulls.access
        self.image_collection = ImageCollection(context, runtime, self._used_images, record, answers)
        # The embedded containerd does not pin its sandbox image, and has no registry to pull it from again.
        embedded = config.embedded_containerd
        self._sandbox_images = names_of(embedded.sandbox_image) if embedded is not None else set()
        self._log_interval = config.container_log_monitor_interval
        self.cleans_logs = is_ours_alone(config.pod_logs_dir, embedded=config.embedded_containerd is not None)
        self._clean_up = LogCleanUp(Path(config.pod_logs_dir), self._fresh, self._existing_containers)

    def pods_changed(self) -> None:
        """Note whether all pods have been observed. Call it after each event of the core, and once all are known."""
        if self._all_observed.is_set() or not self.all_known.is_set():
            return
        if self._is_unobserved(self._unobserved):
            return
        self._unobserved = next(filter(self._is_unobserved, self._core.tracked), "")
        if not self._unobserved:
            self._all_observed.set()

    def _is_unobserved(self, uid: str) -> bool:
        pod = self._core.tracked.get(uid)
        return pod is not None and not (pod.observed.since_start or pod.saved.rejected or pod.saved.state in _OVER)

    def start(self) -> "asyncio.Task[None]":
        """Run in a task until it is cancelled. Its end by an exception is logged and reported."""
        task = asyncio.create_task(self.run())
        task.add_done_callback(self._report_end)
        return task

    def _report_end(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the housekeeping of logs and cgroups has ended: %r", error, exc_info=error)
            self._trouble(
                "housekeeping", "the housekeeping of logs and cgroups has ended, see the log; restart podsync"
            )

    async def run(self) -> None:
        """Run all parts until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._cgroups.run())
            tasks.create_task(self._throttles.run(self._all_observed))
            tasks.create_task(self._placement.run())
            tasks.create_task(self._rotation.run(self._log_interval))
            tasks.create_task(self.image_collection.run())
            if self._images.is_kept:
                tasks.create_task(_repeat(PRUNE_SECONDS, self._images.prune, "the removal of records of images"))
            if self.cleans_logs:
                tasks.create_task(_repeat(CLEAN_UP_SECONDS, self._clean_up.sweep, "the removal of old container logs"))
            else:
                log.info("logs of unknown pods are left alone: set podLogsDir, and they are removed")

    def _known(self) -> KeysView[str] | None:
        return self._core.tracked.keys() if self.all_known.is_set() else None

    def _running(self) -> list[Running]:
        known = [
            (tracked.saved, tracked.observed.alive) for tracked in self._core.tracked.values() if tracked.saved.pod
        ]
        return [Running(saved.pod, one, saved.actuated.get(one.name)) for saved, alive in known for one in alive]

    def _fresh(self) -> Set[str] | None:
        """Return the UIDs of pods whose files stay; None until sources and runtime are complete, and while they are
        stale."""
        known = self._core.node_state
        fresh = self.all_known.is_set() and known.admissions.sources_complete and known.listed.runtime_listed
        return self._core.tracked.keys() if fresh else None

    def _used_images(self) -> Set[str] | None:
        """Return ids and names of images that containers, volumes and starts in progress refer to; None as in
        `_fresh`."""
        if self._fresh() is None:
            return None
        used = set(self._sandbox_images)
        untracked = (c for pod in self._core.node_state.listed.untracked.values() for c in pod.containers)
        for container in (*(c for tracked in self._core.tracked.values() for c in tracked.instances), *untracked):
            used |= {container.image_id, container.image}
        for tracked in self._core.tracked.values():
            starts = (*tracked.starts.values(), *tracked.volume_images.values())
            used |= {progress.image.id for progress in starts if progress.image is not None}
            if tracked.saved.state is not PodState.FINISHED:
                volumes = [volume["image"] for volume in tracked.spec.get("volumes") or () if volume.get("image")]
                used = used.union(*(names_of(str(image["reference"])) for image in volumes if image.get("reference")))
        return used

    def _written_logs(self) -> dict[str, str]:
        return written_logs(c for tracked in self._core.tracked.values() for c in tracked.instances)

    def _existing_containers(self) -> Set[str] | None:
        """Return the ids of containers that have not exited; None as in `_fresh`."""
        if self._fresh() is None:
            return None
        everything = (c for tracked in self._core.tracked.values() for c in tracked.instances)
        return {c.id for c in everything if c.state is not ContainerState.EXITED}


async def _repeat(seconds: float, turn: Callable[[], Awaitable[None]], what: str) -> None:
    """Run the turn every `seconds` until cancelled; one that fails is logged, and the next one follows."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await turn()
        except (RuntimeCallError, OSError) as error:
            log.warning("%s failed and is repeated in %d s: %s", what, seconds, error)
        except Exception:
            log.exception("%s failed unexpectedly", what)
