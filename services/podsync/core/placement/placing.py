"""Places the containers of a whole pod: the topology manager's loop over its providers (node.md 4.12).

Keeps no state: what is free follows from the placements of the other active pods. Nothing is given to a pod of which
one container cannot be served.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct, field

from services.podsync.core.placement.attempt import Alignment, Attempt, Boundary, Step
from services.podsync.core.placement.cpu_policy import CpuPolicy, CpuSettings
from services.podsync.core.placement.device_policy import NO_PLUGINS, DevicePolicy, PluginDevices, requests_devices
from services.podsync.core.placement.devices_of_pod import DevicesOfPod, taken_devices
from services.podsync.core.placement.hint import Hint, Hints, PlacementError
from services.podsync.core.placement.memory_accounting import MemorySettings
from services.podsync.core.placement.memory_policy import MemoryPolicy
from services.podsync.core.placement.merging import (
    DEFAULT_MAX_NODES,
    MAX_NODES,
    NO_AFFINITY,
    TopologyPolicy,
    merge,
    node_limit_error,
)
from services.podsync.core.placement.pod_division import divide_pod, is_divided
from services.podsync.core.placement.pod_placement import NOT_PLACED, ContainerPlacement, PodPlacement, cpus_of
from services.podsync.core.placement.refusal import describe_refusal
from shared.model.frozen_copy import replace
from shared.model.machine_topology import CpuSet, MachineTopology
from shared.model.objects import Object
from shared.podspec.resources import main_containers

_UNEXPECTED = "UnexpectedAdmissionError"


class TopologyScope(StrEnum):
    """Has what is aligned together, as topologyManagerScope names it."""

    CONTAINER = "container"
    POD = "pod"


class TopologySettings(Struct, frozen=True, kw_only=True):
    """Has how the hints of all providers are merged. `prefer_closest` and `max_nodes`: the options
    prefer-closest-numa-nodes and max-allowable-numa-nodes."""

    policy: TopologyPolicy = TopologyPolicy.NONE
    scope: TopologyScope = TopologyScope.CONTAINER
    prefer_closest: bool = False
    max_nodes: int = DEFAULT_MAX_NODES


class PlacementSettings(Struct, frozen=True, kw_only=True):
    """Has the settings of the CPU, the memory and the topology manager. `pod_level`: feature gate
    PodLevelResourceManagers, by which pods with resources of their own are placed too."""

    cpu: CpuSettings = field(default_factory=CpuSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    topology: TopologySettings = field(default_factory=TopologySettings)
    pod_level: bool = False


def node_count_error(topology: MachineTopology, settings: PlacementSettings) -> str:
    """Return why the machine has too many NUMA nodes for these policies, or "" when it has not. The memory manager's
    policy Static compares all sets of nodes, whatever the topology manager's policy is."""
    if settings.memory.static and len(topology.nodes) > MAX_NODES:
        return f"memoryManagerPolicy Static is unsupported on machines with more than {MAX_NODES} NUMA nodes"
    return node_limit_error(settings.topology.policy, topology, settings.topology.max_nodes)


class TopologyAffinityError(PlacementError):
    """Says that no set of NUMA nodes serves all resources as the policy demands."""

    def __init__(self, detail: str) -> None:
        super().__init__("Resources cannot be allocated with Topology locality", "TopologyAffinityError", detail)


class NodePlacer:
    """Places pods on one machine. `others` are always the placements of the other active pods."""

    def __init__(self, topology: MachineTopology, settings: PlacementSettings) -> None:
        self._topology = topology
        self._settings = settings.topology
        self.static_cpus = settings.cpu.static
        self.static_memory = settings.memory.static
        aligns_pods = self._settings.policy is not TopologyPolicy.NONE and self._settings.scope is TopologyScope.POD
        self.pod_level, self._divides_pods = settings.pod_level, settings.pod_level and aligns_pods
        self.cpus = CpuPolicy(topology, settings.cpu, pod_level=settings.pod_level)
        self.memory = MemoryPolicy(topology, settings.memory, pod_level=settings.pod_level)
        self._no_devices = self._devices = DevicePolicy((), {})
        self._devices_of: object = None  # the resources that `_devices` has

    def shared_pool(self, others: Iterable[PodPlacement]) -> CpuSet:
        """Return the CPUs that nobody has for itself, beside these pods: the default set of the checkpoint."""
        return self.cpus.shared_pool(map(cpus_of, others))

    def cpus_to_share(self, others: Iterable[PodPlacement]) -> CpuSet:
        """Return the CPUs on which containers without CPUs of their own run, beside these pods."""
        return self.cpus.cpus_to_share(tuple(map(cpus_of, others)))

    def cpus_per_node(self, cpus: CpuSet) -> dict[int, int]:
        """Return how many of these CPUs each NUMA node with CPUs has."""
        return {node: len(self._topology.cpus_of_nodes(frozenset({node})) & cpus) for node in self._topology.cpu_nodes}

    def concerns(self, pod: Object, plugins: PluginDevices) -> bool:
        """Return whether the pod has to be placed: with a static policy each pod, else one that requests devices."""
        return self.static_cpus or self.static_memory or requests_devices(pod, plugins.resources)

    def place(self, pod: Object, others: Iterable[PodPlacement], plugins: PluginDevices = NO_PLUGINS) -> PodPlacement:
        """Return what the pod's init and regular containers get. Raise PlacementError, with the reason and the message
        of the pod's rejection, and PreferenceNeededError where a device plugin must be asked first."""
        attempt = self.attempt(pod, others, plugins)
        if attempt.error is not None:
            raise attempt.error
        return attempt.placement

    def attempt(self, pod: Object, others: Iterable[PodPlacement], plugins: PluginDevices = NO_PLUGINS) -> Attempt:
        """Return what `place` returns, or the PlacementError that it raises, with its steps. Raise
        PreferenceNeededError."""
        steps: list[Step] = []
        aligns = self._settings.policy is not TopologyPolicy.NONE
        try:
            placement = self._place(pod, tuple(others), plugins, steps)
        except PlacementError as error:
            return Attempt(steps=tuple(steps), aligns=aligns, error=error)
        return Attempt(steps=tuple(steps), aligns=aligns, placement=placement)

    def _place(
        self, pod: Object, others: tuple[PodPlacement, ...], plugins: PluginDevices, steps: list[Step]
    ) -> PodPlacement:
        """Return the pod's placement; the steps up to its end, or up to the error, are added to `steps`."""
        free = self.shared_pool(others)
        devices = DevicesOfPod(self._no_devices, {}, plugins)
        if requests_devices(pod, plugins.resources):
            devices = DevicesOfPod(self._policy_for(plugins), taken_devices(others), plugins)
        own, hint = NOT_PLACED, self._hint_for_pod(pod, devices, free, others, steps)
        try:
            if hint is not None and self._divides_pods and is_divided(pod):
                own = divide_pod(pod, hint, self.cpus, self.memory, devices, free, others, steps)
            else:
                own = self._place_containers(pod, hint, devices, free, others, steps)
        except PlacementError as error:
            if error.reason != _UNEXPECTED:
                raise
            raise PlacementError(f"Allocate failed due to {error}, which is unexpected") from error
        if self._settings.scope is TopologyScope.POD:
            steps.append(Step(alignments=self._node_alignment(kept=True)))
        return own

    def _place_containers(
        self,
        pod: Object,
        hint: Hint | None,
        devices: DevicesOfPod,
        free: CpuSet,
        others: tuple[PodPlacement, ...],
        steps: list[Step],
    ) -> PodPlacement:
        """Place one container after the other. `hint`: for all of them; None = each has its own."""
        own = NOT_PLACED
        for container in main_containers(pod):
            chosen = hint or self._merge(
                container["name"],
                steps,
                devices.hints(pod, container, own),
                self.cpus.hints(pod, container, free, own),
                self.memory.hints(pod, container, others, own),
            )
            own = self._give(pod, container, chosen, devices, free, others, own, steps)
            if self._settings.scope is TopologyScope.CONTAINER:
                steps.append(Step(alignments=self._node_alignment(kept=True)))
        return own

    def _policy_for(self, plugins: PluginDevices) -> DevicePolicy:
        if self._devices_of is not plugins.resources:
            self._devices_of = plugins.resources
            self._devices = DevicePolicy(self._topology.nodes, plugins.resources)
        return self._devices

    def _hint_for_pod(
        self, pod: Object, devices: DevicesOfPod, free: CpuSet, others: tuple[PodPlacement, ...], steps: list[Step]
    ) -> Hint | None:
        """Return the hint that is for all containers of the pod; None when each has its own. With policy none no hints
        are asked for: their number is not bounded then."""
        if self._settings.policy is TopologyPolicy.NONE:
            return NO_AFFINITY
        if self._settings.scope is TopologyScope.CONTAINER:
            return None
        return self._merge(
            "", steps, devices.pod_hints(pod), self.cpus.pod_hints(pod, free), self.memory.pod_hints(pod, others)
        )

    def _merge(self, name: str, steps: list[Step], *hints: Hints) -> Hint:
        settings = self._settings
        best, is_admitted = merge(settings.policy, self._topology, hints, prefer_closest=settings.prefer_closest)
        if not is_admitted:
            steps.append(Step(is_refused=True, alignments=self._node_alignment(kept=False)))
            raise TopologyAffinityError(describe_refusal(settings.policy, name, hints))
        return best

    def _node_alignment(self, *, kept: bool) -> tuple[Alignment, ...]:
        """Return the one alignment that single-numa-node guarantees; no other policy guarantees one."""
        if self._settings.policy is not TopologyPolicy.SINGLE_NUMA_NODE:
            return ()
        return (Alignment(scope=self._settings.scope, boundary=Boundary.NUMA_NODE, kept=kept),)

    def _give(
        self,
        pod: Object,
        container: Object,
        hint: Hint,
        devices: DevicesOfPod,
        free: CpuSet,
        others: tuple[PodPlacement, ...],
        own: PodPlacement,
        steps: list[Step],
    ) -> PodPlacement:
        """Return `own` with what the container gets, and without the memory that it takes over of init containers."""
        try:
            given_now = devices.allocate(pod, container, hint.nodes, own)
        except PlacementError:
            steps.append(Step(is_refused=True))
            raise
        requests_cpus, requests_memory = self.cpus.requested(pod, container) > 0, self.memory.is_for(pod, container)
        try:
            cpus = self.cpus.allocate(pod, container, hint.nodes, free, own)
        except PlacementError:
            steps.append(Step(cpus_requested=requests_cpus, is_refused=True, alignments=self.cpus.misalignments))
            raise
        steps.append(Step(cpus_requested=requests_cpus, alignments=self.cpus.alignments(cpus)))
        try:
            memory = self.memory.allocate(pod, container, hint, others, own)
        except PlacementError:
            steps.append(Step(memory_requested=requests_memory, is_refused=True))
            raise
        steps.append(Step(memory_requested=requests_memory))
        if not cpus and not memory and not given_now:
            return own
        given = ContainerPlacement(
            cpus=cpus, memory=memory.get(container["name"], ()), devices=given_now, affinity=hint.nodes
        )
        left = {
            name: replace(own.containers[name], memory=blocks)
            for name, blocks in memory.items()
            if name != container["name"]
        }
        return PodPlacement(containers={**own.containers, **left, container["name"]: given})
