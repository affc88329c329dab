"""Computes CPU use per second between two readings of one cgroup (node.md 7.1). Pure; times are CLOCK_MONOTONIC
seconds."""

from collections.abc import Iterable

from msgspec import Struct

from bus.messages.usage import CgroupUsage, ContainerUsage, NodeUsage, PodUsage
from shared.model.frozen_copy import replace

MIN_RATE_SECONDS = 5.0  # over which a rate is computed


class _Sample(Struct, frozen=True):
    read_at: float
    cpu_nanoseconds: int


class CpuRates:
    """Keeps the last two readings of each cgroup that are at least 5 s apart. A first reading has no rate."""

    def __init__(self) -> None:
        self._samples: dict[str, tuple[_Sample | None, _Sample]] = {}

    def add_to_node(self, node: NodeUsage) -> NodeUsage:
        """Return the reading with the rates of the node and its system containers."""
        system = (
            replace(container, cgroup=self._rated(f"system {container.name}", container.cgroup, node.read_at))
            for container in node.system_containers
        )
        return replace(node, cgroup=self._rated("node", node.cgroup, node.read_at), system_containers=tuple(system))

    def add_to_pods(self, pods: Iterable[PodUsage]) -> list[PodUsage]:
        """Return the readings of these pods with their CPU rates. Forget the earlier samples of all other pods and
        containers."""
        rated = [self._add_to_pod(pod) for pod in pods]
        kept = {f"pod {pod.uid}" for pod in rated}
        kept |= {f"container {container.id}" for pod in rated for container in pod.containers}
        for key in [key for key in self._samples if key.startswith(("pod ", "container ")) and key not in kept]:
            del self._samples[key]
        return rated

    def _add_to_pod(self, pod: PodUsage) -> PodUsage:
        def with_rate(container: ContainerUsage) -> ContainerUsage:
            if container.cgroup is None:
                return container
            key = f"container {container.id}"
            return replace(container, cgroup=self._rated(key, container.cgroup, pod.read_at))

        own = None if pod.cgroup is None else self._rated(f"pod {pod.uid}", pod.cgroup, pod.read_at)
        return replace(pod, cgroup=own, containers=tuple(map(with_rate, pod.containers)))

    def _rated(self, key: str, usage: CgroupUsage, read_at: float) -> CgroupUsage:
        if usage.cpu_nanoseconds is None or usage.cpu_nanocores is not None:  # the runtime has computed it
            return usage
        now = _Sample(read_at, usage.cpu_nanoseconds)
        base, last = self._samples.get(key, (None, None))
        if last is None or last.cpu_nanoseconds > now.cpu_nanoseconds:  # the cgroup was made again
            base = None
            self._samples[key] = None, now
        elif read_at - last.read_at >= MIN_RATE_SECONDS:
            base = last
            self._samples[key] = last, now
        if base is None:
            return usage
        return replace(
            usage, cpu_nanocores=int((now.cpu_nanoseconds - base.cpu_nanoseconds) / (read_at - base.read_at))
        )
