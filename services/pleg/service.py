"""Builds pleg: relists, event stream, looks at pods, node readings, image lists, usage and probes; connects them."""

import asyncio
from collections.abc import Callable

from bus.interface import Change
from bus.messages.podsync import PodStatus
from bus.messages.streams import NODE_IMAGES, NODE_OBSERVED, PODS_STATUS, RUNTIME_PODS, events_of
from bus.stream import EventRecorder
from services.frame.container_runtime import container_runtime
from services.frame.launch import Context
from services.pleg.adapters.host_reader import MachineReader
from services.pleg.adapters.kernel_log import open_kernel_log
from services.pleg.adapters.pidfd import Pidfds, ProcessWatches
from services.pleg.adapters.probe_try import ProbeRunner
from services.pleg.adapters.reported_usage import ReportedUsageSource
from services.pleg.adapters.usage_source import HostUsage, UsageSource
from services.pleg.controllers.cgroup_requests import CgroupRequests
from services.pleg.controllers.event_stream import EventReader
from services.pleg.controllers.file_usage import FileUsage
from services.pleg.controllers.image_list import ImageReader
from services.pleg.controllers.node_reader import NodeReader, ReadMachine
from services.pleg.controllers.oom_watcher import OomWatcher
from services.pleg.controllers.pod_observer import PodObserver
from services.pleg.controllers.prober import Prober
from services.pleg.controllers.relists import Relists, RuntimeReport
from services.pleg.controllers.usage_reader import UsageReader
from services.pleg.core import events
from services.pleg.core.node_observation import NodeObservation
from shared.config.gate_releases import enabled
from shared.cri.interface import Runtime


def build(context: Context) -> "Pleg":
    """Return the service over the configured runtime."""
    return Pleg(context, container_runtime(context, pids=True), kernel_log=open_kernel_log)


class Pleg:
    """Builds the parts and connects them; each owns its stream."""

    def __init__(
        self,
        context: Context,
        runtime: Runtime,
        watches: Callable[[Callable[[str], None]], ProcessWatches] = Pidfds,
        machine: ReadMachine | None = None,
        usage: UsageSource | None = None,
        kernel_log: Callable[[], int] | None = None,
    ) -> None:
        config, bus, clock = context.config, context.bus, context.clock
        self._runtime = runtime
        pods, node = bus.own(RUNTIME_PODS), bus.own(NODE_OBSERVED)
        bus.follow(PODS_STATUS, self._take_status)
        report, self._facts = RuntimeReport(context), NodeObservation()
        recorder = EventRecorder(bus.own(events_of("pleg")), clock)
        self._ooms = OomWatcher(context, recorder, kernel_log)
        runner = ProbeRunner(runtime, clock, config.runtime_request_timeout, config.emulated_version)
        self._prober = Prober(context, recorder, runner)
        self._images = ImageReader(runtime, clock, bus.own(NODE_IMAGES))
        self._events = EventReader(
            runtime,
            clock,
            on_event=lambda event: self.observer.apply(events.RuntimeEventReceived(event.pod_uid, event.type)),
            on_turn=self._event_stream_turned,
            relist=self._want_relist,
        )
        self._node = NodeReader(
            runtime,
            context,
            self._facts,
            node,
            trouble=lambda error: report.note("status", error),
            machine=machine or MachineReader().read,
        )
        source = usage or HostUsage(config, clock)
        if enabled(config.feature_gates, "PodAndContainerStatsFromCRI"):
            source = ReportedUsageSource(source, runtime, clock)
        self._usage = UsageReader(
            context, source, FileUsage(context, runtime, source), pods, mountpoints=lambda: self._node.mountpoints
        )
        CgroupRequests(context, source, pods, mountpoints=lambda: self._node.mountpoints)
        self._relists = Relists(context, runtime, report, self._facts, self._node, self._events)
        self.observer = PodObserver(
            context,
            runtime,
            pods,
            watches,
            self._images,
            self._prober,
            relist=self._relists.want,
            hurry=self._relists.hurry,
            listed=self._listed,
        )

    async def run(self) -> None:
        """Observe until cancelled, without changing anything in the runtime."""
        self._ooms.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                self.observer.start(tasks)
                tasks.create_task(self._events.run(), name="event-stream")
                tasks.create_task(self._relists.run(self.observer.observation, self.observer.apply), name="relists")
                tasks.create_task(self._node.run(), name="node")
                tasks.create_task(self._images.run(), name="images")
                tasks.create_task(self._usage.run(), name="usage")
                try:
                    await asyncio.Event().wait()
                finally:
                    self.observer.stop()
        finally:
            self._ooms.close()
            self.observer.close()
            self._prober.close()
            self._usage.close()
            await self._runtime.close()

    def _take_status(self, change: Change[PodStatus]) -> None:
        self.observer.take_status(change)

    def _want_relist(self) -> None:
        self._relists.want()

    def _listed(self) -> None:
        self._prober.listed()
        self._usage.listed()

    def _event_stream_turned(self, connected: bool) -> None:
        self.observer.apply(events.EventStreamChanged(connected))
        self._facts.event_stream_turned(connected)
        self._node.publish()
