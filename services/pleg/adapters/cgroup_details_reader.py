"""Reads every number of the cgroups of pods, of those above them and of the root, and the facts of the machine.
Blocks for some tenths of a millisecond for each cgroup. Cgroups that vanish meanwhile are left out.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from bus.messages.cgroup_details import CgroupDetails, DeviceIo, FoundCgroups
from services.pleg.adapters.block_devices import device_name
from services.pleg.adapters.cgroup_reader import CgroupPlace, place_of, place_of_container, read_file, read_usage
from services.pleg.adapters.machine_info import read_machine_info
from services.pleg.adapters.usage_reading import directory_of, made_at, parent_of_pod, read_network
from services.pleg.core.cgroup_details import DeviceNumbers, Numbers, v1_details, v1_io, v2_details, v2_io
from services.pleg.core.cgroup_values import key_numbers
from services.pleg.core.pod_usage import running_containers
from shared.host.cgroup_layout import Hierarchies
from shared.host.cgroup_name import cgroup_name
from shared.model.runtime import RuntimePod, SandboxState
from shared.time.clock import Clock

_NANOSECONDS = 1_000_000_000
_QOS = ((), ("burstable",), ("besteffort",))
SANDBOX_IMAGE = "pause"  # stands for the image of a sandbox, which CRI does not report


class CgroupDetailsReader:
    """Reads the cgroups, for one thread at a time. `pods_cgroup`: the components of the path of kubepods."""

    def __init__(self, hierarchies: Hierarchies, clock: Clock, pods_cgroup: tuple[str, ...]) -> None:
        self._hierarchies, self._clock, self._pods_cgroup = hierarchies, clock, pods_cgroup
        self._machine = read_machine_info()

    def read(self, pods: Sequence[RuntimePod]) -> FoundCgroups:
        """Read all cgroups; the result is without the filesystems of the node."""
        wall = self._clock.wall()
        of_pods = (row for pod in pods for row in self._of_pod(pod, wall))
        return FoundCgroups(machine=self._machine, cgroups=(*self._above_pods(wall), *of_pods))

    def _above_pods(self, wall: float) -> Iterator[CgroupDetails]:
        """Yield the root, kubepods, and the cgroups of the QoS classes."""
        root = self._read(place_of(self._hierarchies, "/"), wall)
        if root is not None:
            yield CgroupDetails(id="/", created_at=0.0, network=read_network(1, wall), **root)  # type: ignore[arg-type]
        for driver in ("cgroupfs", "systemd"):
            for qos in _QOS:
                place = place_of(self._hierarchies, cgroup_name((*self._pods_cgroup, *qos), driver))
                if (row := self._row(place, wall)) is not None:
                    yield row

    def _of_pod(self, pod: RuntimePod, wall: float) -> Iterator[CgroupDetails]:
        own: CgroupPlace | None = None
        sandboxes = [sandbox for sandbox in pod.sandboxes[:1] if sandbox.state is SandboxState.READY]
        for sandbox in sandboxes:
            place = place_of_container(self._hierarchies, sandbox.pid, sandbox.id)
            own = parent_of_pod(place, pod.uid) if place else None
            network = None if sandbox.host_network else read_network(sandbox.pid, wall)
            row = self._row(
                place,
                wall,
                created_at=sandbox.created_at / _NANOSECONDS,
                name=sandbox.id,
                image=SANDBOX_IMAGE,
                pod=pod.name,
                namespace=pod.namespace,
                network=network,
                open_files_limit=_open_files_limit(sandbox.pid),
            )
            if row is not None:
                yield row
        for container in running_containers(pod):
            place = place_of_container(self._hierarchies, container.pid, container.id)
            own = own or (parent_of_pod(place, pod.uid) if place else None)
            row = self._row(
                place,
                wall,
                created_at=container.created_at / _NANOSECONDS,
                name=container.id,
                image=container.image,
                pod=pod.name,
                namespace=pod.namespace,
                container=container.name,
                open_files_limit=_open_files_limit(container.pid),
            )
            if row is not None:
                yield row
        if (row := self._row(own, wall, pod=pod.name, namespace=pod.namespace)) is not None:
            yield row

    def _row(self, place: CgroupPlace | None, wall: float, **more: object) -> CgroupDetails | None:
        numbers = self._read(place, wall) if place else None
        if place is None or numbers is None:
            return None
        more.setdefault("created_at", made_at(directory_of(place)))
        return CgroupDetails(id=self._path(place), **numbers, **more)  # type: ignore[arg-type]

    def _read(self, place: CgroupPlace, wall: float) -> dict[str, object] | None:
        usage = read_usage(place, wall)
        if usage is None:
            return None
        numbers, io = _v2(place.unified) if place.unified is not None else _v1(place)
        named = (
            DeviceIo(
                device=device_name(device.major, device.minor),
                major=device.major,
                minor=device.minor,
                read_bytes=device.read_bytes,
                written_bytes=device.written_bytes,
                reads=device.reads,
                writes=device.writes,
            )
            for device in io
        )
        return {"usage": usage, "io": tuple(named), **numbers}

    def _path(self, place: CgroupPlace) -> str:
        """Return the path of the cgroup in the hierarchy."""
        root = self._hierarchies.unified or self._hierarchies.by_controller[next(iter(place.by_controller))]
        return directory_of(place).removeprefix(str(root)) or "/"


def _v1(place: CgroupPlace) -> tuple[Numbers, tuple[DeviceNumbers, ...]]:
    read = {name: partial(_in, directory) for name, directory in place.by_controller.items()}
    stat = key_numbers(read["memory"]("memory.stat")) if "memory" in read else {}
    numbers = v1_details(read, stat)
    if "blkio" not in read:
        return numbers, ()
    of_bytes = read["blkio"]("blkio.throttle.io_service_bytes_recursive")
    return numbers, v1_io(of_bytes, read["blkio"]("blkio.throttle.io_serviced_recursive"))


def _v2(directory: str) -> tuple[Numbers, tuple[DeviceNumbers, ...]]:
    read = partial(_in, directory)
    return v2_details(read, key_numbers(read("memory.stat"))), v2_io(read("io.stat"))


def _in(directory: str, name: str) -> bytes | None:
    return read_file(f"{directory}/{name}")


def _open_files_limit(pid: int) -> int | None:
    for line in (read_file(f"/proc/{pid}/limits") or b"").splitlines() if pid > 0 else ():
        if line.startswith(b"Max open files"):
            soft = line.split()[3]
            return int(soft) if soft.isdigit() else None
    return None
