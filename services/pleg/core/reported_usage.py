"""The usage of pods from what the runtime reports of their sandboxes (node.md 7.1). Pure."""

from collections.abc import Iterable, Sequence

from bus.messages.usage import (
    CgroupUsage,
    ContainerUsage,
    InterfaceUsage,
    NetworkUsage,
    PodUsage,
    Pressure,
    PressureShare,
)
from services.pleg.core.pod_usage import running_containers
from shared.cri.usage import ReportedPressure, ReportedShare, ReportedUsage, SandboxStats
from shared.model.runtime import RuntimePod

_SWAP = ("swap_available", "swap_usage")  # CRI has them of containers alone


def reported_pods(stats: Iterable[SandboxStats], pods: Sequence[RuntimePod], now: float) -> list[PodUsage]:
    """Return the usage of each pod with a running container whose newest sandbox the runtime reports. A container is in
    it if the runtime reports it, too."""
    by_sandbox = {each.id: each for each in stats}
    return [
        usage
        for pod in pods
        if pod.sandboxes
        and (reported := by_sandbox.get(pod.sandboxes[0].id)) is not None
        and (usage := _pod(pod, reported, now)) is not None
    ]


def _pod(pod: RuntimePod, reported: SandboxStats, now: float) -> PodUsage | None:
    sandbox, running = pod.sandboxes[0], running_containers(pod)
    if not running:
        return None
    containers = [
        ContainerUsage(
            id=container.id,
            name=container.name,
            created_at=container.created_at,
            cgroup=_cgroup(reported.containers[container.id]),
        )
        for container in running
        if container.id in reported.containers
    ]
    figures = dict(reported.usage.figures)
    for name in _SWAP:
        values = [getattr(each.cgroup, name) for each in containers if each.cgroup is not None]
        known = [value for value in values if value is not None]
        if known:
            figures[name] = sum(known)
    network = None
    if reported.interfaces is not None and not sandbox.host_network:
        interfaces = (
            InterfaceUsage(
                name=each.name,
                rx_bytes=each.rx_bytes,
                rx_errors=each.rx_errors,
                tx_bytes=each.tx_bytes,
                tx_errors=each.tx_errors,
            )
            for each in reported.interfaces
        )
        network = NetworkUsage(time=reported.network_time, interfaces=tuple(interfaces))
    return PodUsage(
        uid=pod.uid,
        name=pod.name,
        namespace=pod.namespace,
        created_at=sandbox.created_at,
        read_at=now,
        cgroup=_cgroup(ReportedUsage(time=reported.usage.time, figures=figures, pressures=reported.usage.pressures)),
        network=network,
        processes=reported.processes,
        containers=tuple(containers),
    )


def _cgroup(usage: ReportedUsage) -> CgroupUsage | None:
    """Return the figures; None where the runtime has none."""
    if not usage.figures and not usage.pressures:
        return None
    pressures = {f"{name}_pressure": _pressure(pressure) for name, pressure in usage.pressures.items()}
    return CgroupUsage(time=usage.time, **usage.figures, **pressures)  # type: ignore[arg-type]


def _pressure(pressure: ReportedPressure) -> Pressure:
    return Pressure(some=_share(pressure.some), full=_share(pressure.full))


def _share(share: ReportedShare) -> PressureShare:
    return PressureShare(total=share.total, avg10=share.avg10, avg60=share.avg60, avg300=share.avg300)
