"""Builds podsync: the core from the checkpoint, the calls, the loop with its workers, followers and housekeeping."""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from bus.messages.device_plugins import DeviceResource
from bus.messages.streams import PODS_PULLS, events_of
from bus.stream import EventRecorder
from services.frame.container_runtime import container_runtime
from services.frame.generation import supervisor_generation
from services.frame.launch import Context
from services.frame.restarted import restarted
from services.podsync.adapters.calls.runtime_calls import calls_over
from services.podsync.adapters.cluster_reads import LocalReads, SourcesReads
from services.podsync.adapters.device_requests import DeviceRequests
from services.podsync.adapters.inherited_placements import read_inherited_placements
from services.podsync.adapters.node_facts_reader import (
    read_huge_pages,
    read_machine_facts,
    read_node_facts,
    read_node_resources,
)
from services.podsync.adapters.node_placer import device_placer, read_node_placer, with_placement
from services.podsync.adapters.placement_files import PlacementFiles
from services.podsync.adapters.pod.memory_volumes import MemoryVolumes
from services.podsync.adapters.pod.subpaths import Subpaths
from services.podsync.adapters.steady_clock import RECORD, SteadyClock
from services.podsync.adapters.story import StoryFiles
from services.podsync.controllers.cpu_metrics import CpuMetrics
from services.podsync.controllers.eviction import Eviction
from services.podsync.controllers.followers import Followers
from services.podsync.controllers.housekeeping import Housekeeping
from services.podsync.controllers.node_shutdown import ShutdownSequence
from services.podsync.controllers.placement_checkpoints import PlacementCheckpoints
from services.podsync.controllers.placement_metrics import PlacementMetrics
from services.podsync.controllers.pod_cidr import PodCidr
from services.podsync.controllers.pod_loop import PodLoop
from services.podsync.controllers.pod_previews import PodPreviews
from services.podsync.controllers.pod_streams import PodStreams
from services.podsync.controllers.published_resources import PublishedResources
from services.podsync.controllers.pull_watch import PullWatch
from services.podsync.controllers.start_pressure import StartPressure, available_cpus
from services.podsync.core.checkpoints.start_conflicts import StartConflicts
from services.podsync.core.machine import PodSync, Settings
from services.podsync.core.shutdown.record import is_unfinished
from services.podsync.core.start_order.places import start_places
from shared.cri.interface import Runtime
from shared.files.checkpoint import Checkpoint
from shared.host import cgroup_layout
from shared.host.boot_id import boot_id, start_of_programs
from shared.logind.connection import SHUTDOWN_SIGNAL
from shared.logind.max_delay import raise_max_delay
from shared.logind.shutdown_watch import ShutdownWatch
from shared.model.device_action import DeviceAction
from shared.model.frozen_copy import replace
from shared.model.shutdown_groups import MAX_STATUS_SECONDS, configured_groups, total_seconds

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
PLACEMENT = "placement"  # key of the record of the agent's start
PRESSURE = "pressure"  # key of the record of the conditions' transitions
SHUTDOWN = "shutdown"  # key of the record of the machine's shutdown


class PodSyncService:
    """Builds the parts and connects them. Only `loop` calls `core`. `system_bus`: address of the bus that logind is on,
    None = the system's."""

    def __init__(self, context: Context, runtime: Runtime, system_bus: str | None = None) -> None:
        config, clock, bus = context.config, context.clock, context.bus
        groups = configured_groups(
            config.shutdown_grace_period,
            config.shutdown_grace_period_critical_pods,
            config.shutdown_grace_period_by_pod_priority,
        )
        self.bus, self._deadlines, self._runtime = bus, context.deadlines, runtime
        state, spare = Path(config.root_dir) / "bulkhead" / "podsync", Path(config.run_dir) / "spare" / "podsync"
        self.checkpoint = Checkpoint(state / "pods", spare / "pods")
        self.node_checkpoint = Checkpoint(state / "node", spare / "node")
        node = self.node_checkpoint.load_all()
        last_start = node.get(RECORD, {})
        machine = start_of_programs(str(last_start.get("machine") or "")) if groups else boot_id()
        steady = SteadyClock(clock, self.node_checkpoint, last_start, machine)
        self.stories = StoryFiles(state / "stories", steady.boot, machine_started=steady.machine_started)
        resources = read_node_resources(config)
        facts = read_node_facts(config, resources, cgroup_v2=cgroup_layout.find_hierarchies().unified is not None)
        generation = supervisor_generation()
        conflicts = StartConflicts(node.get(PLACEMENT, {}), generation)
        placer = read_node_placer(config, on_conflict=conflicts.report)
        placement_files = PlacementFiles(Path(config.root_dir))
        inherited = read_inherited_placements(config, placer, placement_files, conflicts.report)
        if placer is not None and conflicts.record is not None:
            self.node_checkpoint.save(PLACEMENT, conflicts.record)
        self._changed_machine = conflicts.trouble
        settings = Settings(
            boot=steady.boot,
            started_at=clock.monotonic(),
            maximum_backoff=config.max_container_restart_period,
            sync_seconds=config.sync_frequency,
            node_ips=facts.node_ips,
            facts=replace(read_machine_facts(config, resources), placer=placer or device_placer()),
            inherited=inherited,
            cpu_retry_seconds=config.cpu_manager_reconcile_period,
            plugin_wait_seconds=config.device_plugin_wait,
            device_action=DeviceAction(config.device_unhealthy_action),
            dead_instances_kept=max(config.maximum_dead_containers_per_container, 1),
            start_places=start_places(available_cpus(), None),
            root_dir=config.root_dir,
            joins_cluster=config.joins_cluster,
            agent_start=generation,
            machine=machine if groups else "",
            was_cut_off=steady.machine_started and is_unfinished(node.get(SHUTDOWN), steady.earlier_machine),
        )
        self.core = PodSync(settings, self.checkpoint.load_all())
        PublishedResources(bus, resources if placer is None else with_placement(resources, placer))
        events = EventRecorder(bus.own(events_of("podsync")), clock)
        self._pull_watch = PullWatch(runtime, clock, bus.own(PODS_PULLS), self.stories, events.record)
        self.calls = calls_over(
            runtime,
            config,
            clock,
            context.metrics,
            facts,
            node=self.core,
            cluster=SourcesReads(bus, config.node_name) if config.joins_cluster else LocalReads(bus, config.node_name),
            subpaths=Subpaths(bus),
            volumes=MemoryVolumes(bus),
            devices=DeviceRequests(bus),
            record=events.record,
            watch_pull=self._pull_watch.watched,
        )
        self.calls.record_resolv_conf_events()
        context.resumption.subscribe(lambda _: self.calls.pulls.forget_credentials())
        PodPreviews(bus, self.core, self.calls, config.credential_providers)
        self.housekeeping = Housekeeping(
            context=context, runtime=runtime, calls=self.calls, core=self.core, events=events
        )
        self.loop = PodLoop(
            context,
            self.core,
            self.checkpoint,
            steady,
            self.stories,
            self.calls,
            events,
            self.housekeeping,
            PodStreams(bus),
        )
        self.eviction = Eviction(
            context,
            self.core,
            steady.now,
            self.loop.handle,
            events,
            self.housekeeping.image_collection.remove_unused,
            saved=node.get(PRESSURE),
            save=partial(self.loop.workers.save_soon, self.node_checkpoint, PRESSURE),
            huge_pages=read_huge_pages(config),
        )
        self.shutdown = ShutdownSequence(
            context,
            self.core,
            groups,
            machine,
            now=steady.now,
            handle=self.loop.handle,
            events=events,
            saved=node.get(SHUTDOWN),
            save=partial(self.loop.workers.save_now, self.node_checkpoint, SHUTDOWN),
            published=self.loop.workers.until_done,
        )
        self.logind = ShutdownWatch(
            "Kubelet needs time to handle node shutdown",
            on_change=partial(self.shutdown.signalled, SHUTDOWN_SIGNAL),
            trouble=partial(bus.trouble, "logind"),
            prepare=partial(raise_max_delay, seconds=total_seconds(groups) + MAX_STATUS_SECONDS),
            address=system_bus,
        )
        self.shutdown.on_over = self.logind.release
        if placer is not None:
            self.loop.metrics.on_verdict = PlacementMetrics(context.metrics, placer).count
        if placer is not None and placer.static_cpus:
            CpuMetrics(context.metrics, placer, self.core.placements)
        self.placement_checkpoints = PlacementCheckpoints(
            placer, placement_files, self.core.placements, self._known_devices, bus.trouble
        )
        self._pod_cidr = PodCidr(context, runtime)
        StartPressure(bus, settings.start_places, self.loop.handle)
        self.loop.on_handled = self._pods_changed
        Followers(bus, handle=self.loop.handle, on_complete=self.loop.complete)

    def _pods_changed(self) -> None:
        self.eviction.pods_changed()
        self.shutdown.pods_changed()
        self.placement_checkpoints.pods_changed()
        self.housekeeping.pods_changed()

    def _known_devices(self) -> Mapping[str, DeviceResource] | None:
        return self.core.devices() if self.core.devices_known() else None

    def _follow_shutdown(self) -> list["asyncio.Task[None]"]:
        """Follow shutdowns of the machine, where pods have time to stop."""
        if not self.shutdown.is_followed:
            return []
        parts = {"the shutdown of the machine": self.shutdown.run, "logind": self.logind.run}
        return [asyncio.create_task(restarted(self.bus, name, run)) for name, run in parts.items()]

    async def run(self) -> None:
        """Continue from the checkpoint, and report once a second whether a worker is overdue, until cancelled."""
        if self._changed_machine is not None:
            log.warning("%s", self._changed_machine)
            self.bus.trouble("changed machine", self._changed_machine)
        self.loop.start()
        self.eviction.start()
        self.shutdown.start()
        housekeeping = self.housekeeping.start()
        eviction = asyncio.create_task(restarted(self.bus, "eviction", self.eviction.run))
        shutdown = self._follow_shutdown()
        files = asyncio.create_task(restarted(self.bus, "placement files", self.placement_checkpoints.run))
        pod_cidr = asyncio.create_task(restarted(self.bus, "pod CIDR", self._pod_cidr.run))
        try:
            while True:
                if self._deadlines.overdue() is None:
                    self.bus.progress("sync")
                self.bus.trouble("blocked", self._deadlines.blocked())
                await asyncio.sleep(TICK_SECONDS)
        finally:
            housekeeping.cancel()
            eviction.cancel()
            for task in shutdown:
                task.cancel()
            files.cancel()
            pod_cidr.cancel()
            for part in (self.loop, self._pull_watch, self.calls, self._runtime):
                await part.close()
            await asyncio.to_thread(self.stories.close)


def build(context: Context) -> PodSyncService:
    """Return the service over the configured runtime."""
    return PodSyncService(context, container_runtime(context, pids=False))
