"""The simulated node with static policies for CPUs and memory and with a device plugin: its machine, what pods request
of it, and the faults on the way of an allocation.

There are more devices and CPUs than all pods of a run request together, so that no verdict depends on the order of
pods.
"""

from random import Random
from typing import Any

from shared.model.frozen_copy import replace
from tests.simulation.faults import BusFault, Fault, Kill, PluginFault
from tests.simulation.workload import PluginPlan, PodPlan, Workload
from tests.unit.podsync.placement.machines import a_machine

SHARE = 0.4  # of the seeds
MACHINE = a_machine(sockets=2, nodes=2, cores=20, threads=2)
RESERVED = frozenset({0, 20})
DEVICES = {f"gpu-{number:02}": (number % 2,) for number in range(32)}  # id -> NUMA nodes
AMOUNTS = {"cpu": "38", "memory": "31Gi"}  # that pods can have
CONFIGURED: dict[str, Any] = {
    "cpu_manager_policy": "static",
    "memory_manager_policy": "Static",
    "topology_manager_policy": "best-effort",
    "reserved_system_cpus": "0,20",
    "system_reserved": {"cpu": "2", "memory": "1Gi"},
    "reserved_memory": ({"numaNode": 0, "limits": {"memory": "1Gi"}},),
}
CALLS = ("AllocatePodDevices", "AskPreferredDevices", "SetContainerCpus")


def with_placement(workload: Workload, rng: Random) -> Workload:
    """Return the workload on the node of this module, in some of the cases; otherwise as it is."""
    if rng.random() >= SHARE:
        return workload
    plugin = PluginPlan(anew=rng.random() < 0.5, prefers=rng.random() < 0.4, prepares=rng.random() < 0.3)
    return replace(workload, plugin=plugin, pods=tuple(_placed(pod, rng) for pod in workload.pods))


def _placed(pod: PodPlan, rng: Random) -> PodPlan:
    return replace(pod, devices=rng.choice((0, 1, 1, 2)), cpus=rng.choice((0, 0, 1, 2)))


def draw_placement_faults(rng: Random, until: float) -> tuple[Fault, ...]:
    """Return up to three faults within the first `until` seconds that concern allocations."""
    return tuple(_fault(rng, round(rng.uniform(0.0, until), 3)) for _ in range(rng.choice((0, 1, 1, 2, 3))))


def _fault(rng: Random, at: float) -> Fault:
    roll = rng.random()
    if roll < 0.6:
        kind = rng.choice(("dead", "dead", "dies", "slow", "silent", "unhealthy"))
        return PluginFault(at, round(rng.uniform(0.5, 15.0), 3), kind)
    down = round(rng.choice((0.05, 0.3, 1.0, 4.0)), 3)
    if roll < 0.75:
        point = f"podsync.{rng.choice(('saved', 'published', 'calling', 'acted'))}.{rng.choice(CALLS)}"
        return Kill(at, "podsync", 0, 0, point, down)
    if roll < 0.85:
        return Kill(at, "volume", 0, 0, "volume.device_plugin.saved", down)
    kind, seconds = rng.choice(("drop", "duplicate", "delay")), round(rng.uniform(0.2, 15.0), 3)
    return BusFault(at, seconds, "devices.resources", "volume", "", kind, rng.choice((0.01, 0.7, 6.0)), 1)
