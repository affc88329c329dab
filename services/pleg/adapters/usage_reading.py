"""Reads once what the node and its pods use: cgroups and tasks. Computes no rate and keeps no figure."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from bus.messages.usage import (
    CgroupUsage,
    ContainerUsage,
    NetworkUsage,
    NodeUsage,
    PodUsage,
    SystemContainerUsage,
)
from services.pleg.adapters.cgroup_reader import (
    CgroupPlace,
    place_of,
    place_of_container,
    place_of_process,
    read_file,
    read_usage,
)
from services.pleg.adapters.host_reader import read_pids
from services.pleg.core.network_counters import interfaces
from services.pleg.core.pod_usage import is_cgroup_of_pod, running_containers, sum_of
from shared.host.cgroup_layout import Hierarchies
from shared.host.cgroup_name import cgroup_name
from shared.host.machine import meminfo
from shared.model.runtime import RuntimePod
from shared.time.clock import Clock

_PROC = Path("/proc")


class UsageReading:
    """Reads usage; every call blocks, and is for one thread at a time. `pods_cgroup`: the components of the path of
    kubepods; `daemons`: system container -> path of its cgroup."""

    def __init__(
        self,
        hierarchies: Hierarchies,
        clock: Clock,
        pods_cgroup: tuple[str, ...],
        daemons: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._hierarchies, self._clock, self._daemons = hierarchies, clock, daemons
        self._pods_cgroups = [cgroup_name(pods_cgroup, driver) for driver in ("cgroupfs", "systemd")]
        self._places: dict[str, CgroupPlace] = {}  # by container id
        self._booted_at = clock.wall() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def read_node(self) -> NodeUsage:
        """Read the node, without its filesystems."""
        read_at, wall = self._clock.monotonic(), self._clock.wall()
        root = read_usage(place_of(self._hierarchies, "/"), wall) or CgroupUsage(time=wall)
        pids_max, pids_current = read_pids(_PROC)
        return NodeUsage(
            read_at=read_at,
            started_at=self._booted_at,
            cgroup=root,
            memory_capacity=meminfo().get("MemTotal"),
            pids_max=None if pids_max < 0 else pids_max,
            pids_current=None if pids_current < 0 else pids_current,
            network=read_network(1, wall),
            system_containers=self._system_containers(wall),
        )

    def read_pods(self, pods: Sequence[RuntimePod]) -> list[PodUsage]:
        """Read the cgroups of all pods; one without a running container has no usage."""
        usages = [usage for pod in pods if (usage := self._read_pod(pod)) is not None]
        for container_id in self._places.keys() - {container.id for pod in usages for container in pod.containers}:
            del self._places[container_id]
        return usages

    def _read_pod(self, pod: RuntimePod) -> PodUsage | None:
        running = running_containers(pod)
        if not running:
            return None
        read_at, wall = self._clock.monotonic(), self._clock.wall()
        own: CgroupPlace | None = None
        containers = []
        for container in running:
            place = self._place(container.id, container.pid)
            own = own or (parent_of_pod(place, pod.uid) if place else None)
            usage = read_usage(place, wall) if place else None
            if usage is None or not usage.processes:
                self._places.pop(container.id, None)  # its processes may have moved to another cgroup
            containers.append(
                ContainerUsage(id=container.id, name=container.name, created_at=container.created_at, cgroup=usage)
            )
        usages = [container.cgroup for container in containers if container.cgroup]
        processes = [usage.processes for usage in usages if usage.processes is not None]
        return PodUsage(
            uid=pod.uid,
            name=pod.name,
            namespace=pod.namespace,
            created_at=pod.sandboxes[0].created_at if pod.sandboxes else running[0].created_at,
            read_at=read_at,
            cgroup=(read_usage(own, wall) if own else None) or sum_of(usages),
            network=_network_of(pod, wall),
            processes=sum(processes) if processes else None,
            containers=tuple(containers),
        )

    def _place(self, container_id: str, pid: int) -> CgroupPlace | None:
        place = self._places.get(container_id)
        if place is None and (place := place_of_container(self._hierarchies, pid, container_id)) is not None:
            self._places[container_id] = place
        return place

    def _system_containers(self, wall: float) -> tuple[SystemContainerUsage, ...]:
        """Read kubepods, the cgroups of daemons, and that of this agent where it has one of its own."""
        places = [("pods", place_of(self._hierarchies, name), "") for name in self._pods_cgroups]
        for name, path in self._daemons.items():
            made = f"{_PROC}/{os.getppid()}" if name == "kubelet" else ""  # supervisord, which is as old as the agent
            places.append((name, place_of(self._hierarchies, path), made))
        if "kubelet" not in self._daemons and (own := self._own_cgroup()) is not None:
            places.append(("kubelet", own, f"{_PROC}/{os.getppid()}"))
        usages: dict[str, SystemContainerUsage] = {}
        for name, place, made in places:
            if name not in usages and (usage := read_usage(place, wall)) is not None:
                created_at = made_at(made or directory_of(place))
                usages[name] = SystemContainerUsage(name=name, created_at=created_at, cgroup=usage)
        return tuple(usages.values())

    def _own_cgroup(self) -> CgroupPlace | None:
        """Return the agent's cgroup; None where it is the root of a controller, whose numbers are the machine's."""
        place = place_of_process(self._hierarchies, os.getpid())
        if place is None or place.is_root:
            return None
        roots = self._hierarchies.by_controller
        in_root = any(place.by_controller.get(name) == str(roots.get(name)) for name in ("cpuacct", "memory"))
        return None if in_root else place


def parent_of_pod(place: CgroupPlace, uid: str) -> CgroupPlace | None:
    """Return the cgroup of the pod above that of one of its containers or processes; None where there is none."""

    def parent(path: str) -> str | None:
        above = path.split("/")[:-1]
        own = next((number for number, name in enumerate(above, 1) if is_cgroup_of_pod(name, uid)), None)
        return "/".join(above[:own]) if own else None

    if place.unified is not None:
        above = parent(place.unified)
        return CgroupPlace(above, {}) if above else None
    parents = {name: above for name, path in place.by_controller.items() if (above := parent(path))}
    return CgroupPlace(None, parents) if parents else None


def _network_of(pod: RuntimePod, wall: float) -> NetworkUsage | None:
    """Read the pod's own network; None where it has the node's."""
    sandbox = pod.sandboxes[0] if pod.sandboxes else None
    if sandbox is None or sandbox.host_network or not sandbox.pid:
        return None
    return read_network(sandbox.pid, wall)


def read_network(pid: int, wall: float) -> NetworkUsage | None:
    """Read the interfaces in the network namespace of a process; None where it has ended."""
    text = read_file(f"{_PROC}/{pid}/net/dev")
    return None if text is None else NetworkUsage(time=wall, interfaces=interfaces(text))


def directory_of(place: CgroupPlace) -> str:
    """Return one of the directories of the cgroup, "" = it has none."""
    return place.unified or next(iter(place.by_controller.values()), "")


def made_at(path: str) -> float:
    """Return when a directory was made, wall clock seconds; 0 where it cannot be read."""
    try:
        return Path(path).stat().st_ctime
    except OSError:
        return 0.0
