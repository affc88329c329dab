"""The document of /stats/summary from a reading of pleg's (node.md 7.3); a figure that is not known is absent. Pure."""

from collections.abc import Iterable

from bus.messages.usage import (
    CgroupUsage,
    ContainerUsage,
    FilesystemUsage,
    FoundUsage,
    InterfaceUsage,
    NetworkUsage,
    NodeUsage,
    PodUsage,
    Pressure,
    PressureShare,
    VolumeUsage,
)
from shared.model.objects import Object
from shared.time.timestamps import rfc3339

DEFAULT_INTERFACE = "eth0"
NANOSECONDS = 1_000_000_000
MAX_DEPTH = 16  # levels of a document


def summary(found: FoundUsage, node_name: str, *, only_cpu_and_memory: bool) -> Object:
    """Return the document; with `only_cpu_and_memory` it has neither filesystems, networks and tasks nor PSI of I/O."""
    full = not only_cpu_and_memory
    return {
        "node": _node(found.node, node_name, full=full),
        "pods": [_pod(pod, full=full) for pod in found.pods],
    }


def with_one_space(text: bytes) -> bytes:
    """Return JSON that is indented by two spaces a level with one space a level."""
    for depth in range(MAX_DEPTH, 0, -1):  # NUL marks a line that is done: no text in JSON contains it
        text = text.replace(b"\n" + b"  " * depth, b"\0" + b" " * depth)
    return text.replace(b"\0", b"\n")


def _node(node: NodeUsage, name: str, *, full: bool) -> Object:
    shown: Object = {
        "nodeName": name,
        "systemContainers": [
            {"name": each.name, "startTime": rfc3339(each.created_at), **_cgroup(each.cgroup, full=full)}
            for each in node.system_containers
        ],
        "startTime": rfc3339(node.started_at),
        **_cgroup(node.cgroup, full=full),
    }
    if not full:
        return shown
    _add(shown, "network", _network(node.network))
    _add(shown, "fs", _filesystem(node.nodefs))
    runtime: Object = {}
    _add(runtime, "imageFs", _filesystem(node.imagefs))
    _add(runtime, "containerFs", _filesystem(node.containerfs))
    _add(shown, "runtime", runtime)
    if node.pids_max is not None and node.pids_current is not None:
        time = rfc3339(node.cgroup.time)
        shown["rlimit"] = {"time": time, "maxpid": node.pids_max, "curproc": node.pids_current}
    return shown


def _pod(pod: PodUsage, *, full: bool) -> Object:
    shown: Object = {
        "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "startTime": rfc3339(pod.created_at / NANOSECONDS),
        "containers": [_container(container, full=full) for container in pod.containers],
    }
    if pod.cgroup is not None:
        shown.update(_cgroup(pod.cgroup, full=full))
    if not full:
        return shown
    _add(shown, "network", _network(pod.network))
    if pod.volumes:
        ephemeral_first = sorted(pod.volumes, key=lambda volume: not volume.ephemeral)
        shown["volume"] = [_volume(volume, pod.namespace) for volume in ephemeral_first]
    _add(shown, "ephemeral-storage", _filesystem(pod.ephemeral_storage))
    if pod.processes is not None:
        shown["process_stats"] = {"process_count": pod.processes}
    return shown


def _container(container: ContainerUsage, *, full: bool) -> Object:
    shown: Object = {"name": container.name, "startTime": rfc3339(container.created_at / NANOSECONDS)}
    if container.cgroup is not None:
        shown.update(_cgroup(container.cgroup, full=full))
    if full:
        _add(shown, "rootfs", _filesystem(container.rootfs))
        _add(shown, "logs", _filesystem(container.logs))
    return shown


def _cgroup(usage: CgroupUsage, *, full: bool) -> Object:
    time = rfc3339(usage.time)
    shown: Object = {}
    cpu = _known(
        usageNanoCores=usage.cpu_nanocores,
        usageCoreNanoSeconds=usage.cpu_nanoseconds,
        psi=_pressure(usage.cpu_pressure),
    )
    memory = _known(
        availableBytes=usage.memory_available,
        usageBytes=usage.memory_usage,
        workingSetBytes=usage.memory_working_set,
        rssBytes=usage.memory_rss,
        pageFaults=usage.page_faults,
        majorPageFaults=usage.major_page_faults,
        psi=_pressure(usage.memory_pressure),
    )
    swap = _known(swapAvailableBytes=usage.swap_available, swapUsageBytes=usage.swap_usage)
    for key, figures in (("cpu", cpu), ("memory", memory), ("swap", swap)):
        if figures:
            shown[key] = {"time": time, **figures}
    if full and usage.io_pressure is not None:
        shown["io"] = {"time": time, "psi": _pressure(usage.io_pressure)}
    return shown


def _pressure(pressure: Pressure | None) -> Object | None:
    if pressure is None:
        return None
    return {"full": _share(pressure.full), "some": _share(pressure.some)}


def _share(share: PressureShare) -> Object:
    return {"total": share.total, "avg10": share.avg10, "avg60": share.avg60, "avg300": share.avg300}


def _network(network: NetworkUsage | None) -> Object | None:
    """Return the network of a summary. Its own counters are those of eth0; without eth0 it has none."""
    if network is None:
        return None
    shown: Object = {"time": rfc3339(network.time), "name": ""}
    for interface in network.interfaces:
        if interface.name == DEFAULT_INTERFACE:
            shown.update(_interface(interface))
    if network.interfaces:
        shown["interfaces"] = [_interface(interface) for interface in network.interfaces]
    return shown


def _interface(interface: InterfaceUsage) -> Object:
    return {
        "name": interface.name,
        "rxBytes": interface.rx_bytes,
        "rxErrors": interface.rx_errors,
        "txBytes": interface.tx_bytes,
        "txErrors": interface.tx_errors,
    }


def _filesystem(usage: FilesystemUsage | None) -> Object | None:
    if usage is None:
        return None
    return {"time": rfc3339(usage.time), **_known(**dict(_figures(usage)))}


def _volume(volume: VolumeUsage, namespace: str) -> Object:
    """Here all six figures are shown, 0 where there is none."""
    figures = {name: figure or 0 for name, figure in _figures(volume.filesystem)}
    shown: Object = {"time": rfc3339(volume.filesystem.time), **figures, "name": volume.name}
    if volume.claim:
        shown["pvcRef"] = {"name": volume.claim, "namespace": namespace}
    if volume.abnormal is not None:
        shown["volumeHealthStats"] = {"abnormal": volume.abnormal}
    return shown


def _figures(usage: FilesystemUsage) -> Iterable[tuple[str, int | None]]:
    return (
        ("availableBytes", usage.available),
        ("capacityBytes", usage.capacity),
        ("usedBytes", usage.used),
        ("inodesFree", usage.inodes_free),
        ("inodes", usage.inodes),
        ("inodesUsed", usage.inodes_used),
    )


def _known(**figures: object) -> Object:
    return {name: figure for name, figure in figures.items() if figure is not None}


def _add(shown: Object, key: str, value: Object | None) -> None:
    if value:
        shown[key] = value
