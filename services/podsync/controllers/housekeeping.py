"""What podsync keeps up beside single pods: the cgroups of node and QoS classes, the rotation of logs, what is left of
pods and images that are gone.

Wires these tasks to what the core knows; "not known" counts only once sources and runtime have told all and are fresh.
"""

import asyncio
import logging
from collections.abc import KeysView, Set
from pathlib import Path

from bus.event_recorder import EventRecorder
from bus.messages.podsync import PodState
from services.frame.launch import Context
from services.podsync.adapters.calls.runtime_calls import RuntimeCalls
from services.podsync.adapters.cgroups.node_cgroups import NodeCgroups
from services.podsync.adapters.logs.log_clean_up import LogCleanUp, is_ours_alone
from services.podsync.adapters.logs.log_rotation import LogRotation
from services.podsync.controllers.core_reads import CoreReads
from services.podsync.controllers.image_collection import ImageCollection
from services.podsync.core.logs.log_rotation import LogLimits, written_logs
from services.podsync.core.machine import PodSync
from shared.cri.interface import Runtime
from shared.model.runtime import ContainerState

log = logging.getLogger(__name__)


class Housekeeping:
    """`all_known` is set once everything was told in this life."""

    def __init__(
        self,
        *,
        context: Context,
        runtime: Runtime,
        calls: RuntimeCalls,
        core: PodSync,
        node_reads: CoreReads,
        events: EventRecorder,
    ) -> None:
        config, clock, trouble = context.config, context.clock, context.bus.trouble
        self._core, self._trouble = core, trouble
        self.all_known = False
        self._cgroups = NodeCgroups(calls.cgroups, config, node_reads.active_pods, self._known, events.record, trouble)
        limits = LogLimits(size=config.container_log_max_size, files=config.container_log_max_files)
        self._rotation = LogRotation(runtime, clock, limits, config.container_log_max_workers, self._written_logs)
        self._images = calls.pulls.access
        self.image_collection = ImageCollection(context, runtime, self._used_images, events.record)
        self._log_interval = config.container_log_monitor_interval
        self.cleans_logs = is_ours_alone(config)
        self._clean_up = LogCleanUp(Path(config.pod_logs_dir), self._fresh, self._existing_containers)

    def start(self) -> "asyncio.Task[None]":
        """Run as a task until it is cancelled. Its end by an exception is logged and reported."""
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
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._cgroups.keep())
            tasks.create_task(self._rotation.keep(self._log_interval))
            tasks.create_task(self._images.keep())
            tasks.create_task(self.image_collection.run())
            if self.cleans_logs:
                tasks.create_task(self._clean_up.keep())
            else:
                log.info("logs of unknown pods are left alone: set podLogsDir, and they are removed")

    def _known(self) -> KeysView[str] | None:
        return self._core.records.keys() if self.all_known else None

    def _fresh(self) -> Set[str] | None:
        """Pods of which something stays; None until everything was told, and while what is told may be old."""
        known = self._core.node_state
        told = self.all_known and known.admissions.sources_complete and known.runtime_listed
        return self._core.records.keys() if told else None

    def _used_images(self) -> Set[str] | None:
        """Ids and names of images that containers, volumes and starts in progress refer to; None as for `_fresh`."""
        if self._fresh() is None:
            return None
        used: set[str] = set()
        unclaimed = (c for pod in self._core.node_state.unclaimed.values() for c in pod.containers)
        for container in (*(c for record in self._core.records.values() for c in record.instances), *unclaimed):
            used |= {container.image_id, container.image}
        for record in self._core.records.values():
            found = (*record.starts.values(), *record.volume_images.values())
            used |= {progress.image.id for progress in found if progress.image is not None}
            if record.saved.state is not PodState.FINISHED:
                used |= {str(v["image"].get("reference")) for v in record.spec.get("volumes") or () if v.get("image")}
        return used

    def _written_logs(self) -> dict[str, str]:
        return written_logs(c for record in self._core.records.values() for c in record.instances)

    def _existing_containers(self) -> Set[str] | None:
        """Containers that have not exited; None likewise."""
        if self._fresh() is None:
            return None
        everything = (c for record in self._core.records.values() for c in record.instances)
        return {c.id for c in everything if c.state is not ContainerState.EXITED}
