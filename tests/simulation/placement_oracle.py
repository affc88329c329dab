"""What must never happen to devices and CPUs of containers, as the runtime and the bus show it from outside: none is
with two containers at one time, none is lost at a restart, and the reserved CPUs stay free.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared.cri.interface import Message
from shared.model.cpu_list import parse_cpus
from shared.model.runtime import ContainerState
from tests.simulation.device_plugin import VARIABLE
from tests.simulation.oracle import Oracle
from tests.simulation.placement import MACHINE, RESERVED
from tests.simulation.runtime import SimulationRuntime
from tests.simulation.workload import PodPlan


@dataclass(frozen=True)
class Given:
    """Has what a container has: the ids of its devices, its CPUs and its NUMA nodes."""

    devices: frozenset[str]
    cpus: frozenset[int]
    nodes: str


class PlacementOracle:
    """Looks at each container that begins to run or gets another cpuset. `plan_of` returns the plan of a pod."""

    def __init__(self, oracle: Oracle, runtime: SimulationRuntime, plan_of: Callable[[str], PodPlan | None]) -> None:
        self._oracle, self._runtime, self._plan_of = oracle, runtime, plan_of
        self._first: dict[tuple[str, str], Given] = {}  # (uid, container) -> what it was given first
        self._unset: set[str] = set()  # ids of containers whose newest cpuset could not be set

    def given(self, container_id: str) -> Given:
        """Return what the container has now."""
        return given_to(self._runtime._containers[container_id].config)

    def refused(self, container_id: str) -> None:
        """Note a cpuset that could not be set: such a container delays no other one."""
        self._unset.add(container_id)

    def changed(self, container_id: str) -> None:
        """Note a cpuset that was set."""
        self._unset.discard(container_id)
        if container_id in self._runtime._containers:
            self._check_others(container_id)

    def started(self, uid: str, name: str, container_id: str) -> None:
        """Look at a container that begins to run."""
        plan, given = self._plan_of(uid), self.given(container_id)
        if plan is None:
            return
        what = f"container {name} of pod {uid[-12:]}"
        devices = plan.devices if name == "c0" else 0
        if len(given.devices) != devices:
            self._oracle.violated(f"{what} has {sorted(given.devices)} instead of {devices} devices")
        if plan.cpus and (len(given.cpus) != plan.cpus or given.cpus & RESERVED):
            self._oracle.violated(f"{what} has the CPUs {sorted(given.cpus)} instead of {plan.cpus} of its own")
        if plan.cpus and not given.nodes:
            self._oracle.violated(f"{what} has no memory of its own")
        if self._oracle.may_come_back(uid):
            self._first.pop((uid, name), None)
        first = self._first.setdefault((uid, name), given)
        if first.devices != given.devices or (plan.cpus and first != given):
            self._oracle.violated(f"{what} had {first} and has {given}")
        self._check_others(container_id)

    def _check_others(self, container_id: str) -> None:
        """Compare with each other container that runs."""
        running = list(self._running())
        if container_id not in [found for found, _ in running]:
            return
        own, mine = self.given(container_id), self._has_own_cpus(container_id)
        for other, name in running:
            if other == container_id:
                continue
            given = self.given(other)
            if twice := own.devices & given.devices:
                self._oracle.violated(f"the device {min(twice)} is with two containers: {container_id[:8]}, {name}")
            exclusive = mine or self._has_own_cpus(other)
            if exclusive and own.cpus & given.cpus and not self._unset & {container_id, other}:
                cpus = sorted(own.cpus & given.cpus)
                self._oracle.violated(f"the CPUs {cpus} of a container are also those of {container_id[:8]}, {name}")

    def _running(self) -> list[tuple[str, str]]:
        runtime = self._runtime
        return [
            (found, f"{held.container.name} {found[:8]}")
            for found, held in runtime._containers.items()
            if held.container.state is ContainerState.RUNNING and held.container.pid not in runtime._ended_pids
        ]

    def _has_own_cpus(self, container_id: str) -> bool:
        runtime = self._runtime
        plan = self._plan_of(runtime._uid_of(runtime._containers[container_id].container.sandbox_id))
        return plan is not None and plan.cpus > 0


def given_to(config: Message) -> Given:
    """Return what a container of this configuration has."""
    resources: dict[str, Any] = config.get("linux", {}).get("resources", {})
    variables = {env["key"]: env.get("value", "") for env in config.get("envs", ())}
    devices = variables.get(VARIABLE, "")
    return Given(
        devices=frozenset(devices.split(",")) if devices else frozenset(),
        cpus=parse_cpus(resources.get("cpuset_cpus", "")) or MACHINE.all_cpus,
        nodes=resources.get("cpuset_mems", ""),
    )
