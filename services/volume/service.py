"""Builds the parts of volume and connects them to the bus and to each other."""

import asyncio
import random
import secrets
from functools import partial
from pathlib import Path

from bus.interface import Change
from bus.messages.device_plugins import AllocateDevices, GetPreferredAllocation, PreStartContainer
from bus.messages.podsync import PodVolumes
from bus.messages.sources import NodeObject
from bus.messages.streams import (
    CLAIMS_PREPARED,
    DEVICES_RESOURCES,
    NODE_OBJECT,
    NODE_RESOURCES,
    OBJECTS_CHANGED,
    PLUGINS_REGISTERED,
    PODS_VOLUMES,
    VOLUMES_REPORTED,
    events_of,
)
from bus.messages.volume import (
    GetVolumeUsage,
    PrepareSubpath,
    RegisteredPlugin,
    ReleaseSubpaths,
    ResizeMemoryVolumes,
)
from bus.stream import EventRecorder
from services.frame.launch import Context
from services.frame.restarted import restarted
from services.volume.adapters.cluster_content import ClusterContent
from services.volume.adapters.csi_client import CsiDrivers
from services.volume.adapters.flex_drivers import FlexDrivers
from services.volume.adapters.plugin_sockets import PluginSockets
from services.volume.adapters.pod_certificates import PodCertificates
from services.volume.adapters.pod_directories import PodDirectories
from services.volume.adapters.threads import call_in_loop
from services.volume.controllers.changes import Changes
from services.volume.controllers.claim_checkpoint import ClaimCheckpoint
from services.volume.controllers.claim_reads import ClaimReads
from services.volume.controllers.csi_limits import CsiLimits
from services.volume.controllers.device_health_watch import DeviceHealthWatch
from services.volume.controllers.device_plugins import DevicePlugins
from services.volume.controllers.device_requests import DeviceRequests
from services.volume.controllers.driver_calls import DriverCalls
from services.volume.controllers.driver_connections import DriverConnections
from services.volume.controllers.flex_capabilities import FlexCapabilities
from services.volume.controllers.memory_swap_warning import warn_of_swapped_memory
from services.volume.controllers.memory_volume_requests import MemoryVolumeRequests
from services.volume.controllers.mounted_roots import MountedRoots
from services.volume.controllers.operation_executor import OperationExecutor
from services.volume.controllers.plugin_registration import PluginRegistration
from services.volume.controllers.populator import DesiredStateOfWorldPopulator
from services.volume.controllers.reconciliation import Reconciliation
from services.volume.controllers.resource_claims import ResourceClaims
from services.volume.controllers.selinux_metrics import SELinuxMetrics
from services.volume.controllers.subpath_requests import SubpathRequests
from services.volume.controllers.volume_expansion import VolumeExpansion
from services.volume.controllers.volume_metrics import VolumeMetrics
from services.volume.controllers.volume_usage import VolumeUsages
from services.volume.core.files.token_cache import JITTER_SECONDS
from services.volume.core.reconciler import Reconciler
from services.volume.core.registration.plugin_answers import CSI, DRA
from services.volume.core.world.actual_state_of_world import ActualStateOfWorld
from services.volume.core.world.attachments import Attachments
from services.volume.plugins.plugin_calls import PluginCalls
from services.volume.plugins.registry import PLUGINS, Plugins
from shared.pods.failures import PodFailures


def build(context: Context) -> "Volume":
    """Return the service for `services.frame.launch`."""
    return Volume(context)


class Volume:
    """The service volume: the only owner of `volumes.mounted`, `plugins.registered`, `devices.resources` and
    `claims.prepared`, and the only process that mounts. `calls`: performs the operations, None = the plugins do."""

    def __init__(self, context: Context, plugins: Plugins = PLUGINS, calls: PluginCalls | None = None) -> None:
        bus, clock, root = context.bus, context.clock, context.config.root_dir
        self.bus = bus
        changed, failures = Changes(), PodFailures()
        certificates = PodCertificates(bus, clock, context.config.node_name, random.random)
        content = ClusterContent(bus, clock, lambda: float(random.randrange(JITTER_SECONDS)), certificates)
        claims = ClaimReads(content)
        flex_drivers = FlexDrivers(context.config.volume_plugin_dir, clock)
        flex = self._flex = FlexCapabilities(flex_drivers, clock)
        populator = DesiredStateOfWorldPopulator(context, plugins, failures, claims, flex, changed)
        reconciler = self.reconciler = Reconciler(
            populator.desired,
            ActualStateOfWorld(),
            Attachments(secrets.token_hex(4), by_controller=context.config.controller_attach_detach),
        )
        sockets = PluginSockets(Path(root) / "plugins_registry")
        self._devices = DevicePlugins(bus, clock, Path(root), bus.own(DEVICES_RESOURCES), context.metrics)
        registration = PluginRegistration(bus, clock, sockets, bus.own(PLUGINS_REGISTERED), self._devices)
        self._registration = registration
        self._connections = DriverConnections(partial(registration.sockets, DRA))
        registration.listens = self._connections.listens
        self._connections.on_change = registration.connections_changed
        metrics = VolumeMetrics(context.metrics, reconciler, certificates.states)
        SELinuxMetrics(context.metrics, populator.desired.pods.values)
        called = partial(call_in_loop, asyncio.get_running_loop(), metrics.driver_called)
        drivers = CsiDrivers(partial(registration.endpoint, CSI), called)
        calls = calls or PluginCalls(PodDirectories(root), clock, plugins, drivers, flex_drivers)
        expansion = VolumeExpansion(bus, clock, content, claims.reread)
        executor = OperationExecutor(context, reconciler, calls, content, failures, metrics, expansion)
        self._limits = CsiLimits(clock, content, registration, reconciler, changed.add_pods)
        warn_of_swapped_memory(events := EventRecorder(bus.own(events_of("volume")), clock), context.config.node_name)
        self._claim_checkpoint = ClaimCheckpoint(bus, clock, Path(root))
        self._claims = ResourceClaims(
            bus,
            clock,
            Path(root),
            bus.own(CLAIMS_PREPARED),
            content,
            DriverCalls(clock, partial(registration.endpoints, DRA), lambda: registration.complete),
            DeviceHealthWatch(clock, partial(registration.registered, DRA)),
            self._claim_checkpoint,
            events,
            context.metrics,
        )
        self._usages = VolumeUsages(reconciler, calls, clock)
        roots = MountedRoots(reconciler)
        subpaths = SubpathRequests(reconciler, executor, roots, changed.add_pods)
        self._reconciliation = Reconciliation(
            context,
            failures=failures,
            reconciler=reconciler,
            executor=executor,
            content=content,
            claims=claims,
            roots=roots,
            limits=self._limits,
            events=events,
            changed=changed,
        )

        def on_drivers() -> None:
            self._connections.drivers_changed()
            self._reconciliation.on_drivers()
            self._claims.drivers_changed(self._dra_sockets())

        registration.on_change = on_drivers

        def on_volumes(change: Change[PodVolumes]) -> None:
            populator.on_volumes(change)
            self._claims.on_volumes(change)

        def on_node(change: Change[NodeObject]) -> None:
            populator.on_node(change)
            self._reconciliation.on_node(change)

        executor.on_end = self._reconciliation.on_operation_end
        certificates.on_event = self._usages.on_event = self._reconciliation.on_event
        self._usages.on_health = changed.add_pods
        bus.follow(PODS_VOLUMES, on_volumes)
        bus.follow(OBJECTS_CHANGED, self._reconciliation.on_object)
        bus.follow(NODE_RESOURCES, populator.on_resources)
        bus.follow(NODE_OBJECT, on_node)
        bus.follow(VOLUMES_REPORTED, self._reconciliation.on_reported)
        bus.answer(PrepareSubpath, subpaths.prepare)
        self._memory = MemoryVolumeRequests(reconciler, roots, clock, populator.node_memory, changed.add_pods)
        bus.answer(ResizeMemoryVolumes, self._memory.resize)
        bus.answer(GetVolumeUsage, self._usages.get)
        bus.answer(ReleaseSubpaths, subpaths.release)
        devices = DeviceRequests(self._devices, clock, context.metrics)
        bus.answer(GetPreferredAllocation, devices.prefer)
        bus.answer(AllocateDevices, devices.allocate)
        bus.answer(PreStartContainer, devices.pre_start)

    def _dra_sockets(self) -> dict[str, list[tuple[RegisteredPlugin, bool]]]:
        """Return the sockets of each DRA driver, and whether it listens there."""
        found, listens = self._registration, self._connections.listens
        return {
            name: [(plugin, listens(plugin.endpoint)) for plugin in found.endpoints(DRA, name)]
            for name in found.registered(DRA)
        }

    async def run(self) -> None:
        """Reconcile whenever something changed and register plugins, until cancelled; mounts are left as they are."""
        parts = {
            "plugin registration": self._registration.run,
            "device plugins": self._devices.run,
            "resource claims": self._claims.run,
            "checkpoint of resource claims": self._claim_checkpoint.run,
            "volume limits": self._limits.run,
        }
        tasks = [asyncio.create_task(restarted(self.bus, name, run)) for name, run in parts.items()]
        try:
            await self._reconciliation.run()
        finally:
            for task in tasks:
                task.cancel()
            await self._connections.close()
            self._flex.close()
            self._memory.close()
            self._claims.close()
            self._claim_checkpoint.close()
            await self._usages.close()
