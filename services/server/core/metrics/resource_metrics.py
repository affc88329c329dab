"""Forms the page of /metrics/resource, which metrics-server reads (node.md 7.6), from a reading of pleg's. Pure.

Samples have the time of the reading: metrics-server computes rates between two of them.
"""

from collections.abc import Iterable

from bus.messages.usage import CgroupUsage, FoundUsage
from services.server.core.metrics.metrics_text import label_pairs

NANOSECONDS = 1_000_000_000
MILLISECONDS = 1000

# name, type, help
_NODE_CPU = ("node_cpu_usage_seconds_total", "counter", "[STABLE] CPU time of the node, in core-seconds")
_NODE_MEMORY = ("node_memory_working_set_bytes", "gauge", "[STABLE] Working set of the node, in bytes")
_NODE_SWAP = ("node_swap_usage_bytes", "gauge", "[ALPHA] Swap that the node uses, in bytes; Linux alone")
_POD_CPU = ("pod_cpu_usage_seconds_total", "counter", "[STABLE] CPU time of the pod, in core-seconds")
_POD_MEMORY = ("pod_memory_working_set_bytes", "gauge", "[STABLE] Working set of the pod, in bytes")
_POD_SWAP = ("pod_swap_usage_bytes", "gauge", "[ALPHA] Swap that the pod uses, in bytes; Linux alone")
_CPU = ("container_cpu_usage_seconds_total", "counter", "[STABLE] CPU time of the container, in core-seconds")
_MEMORY = ("container_memory_working_set_bytes", "gauge", "[STABLE] Working set of the container, in bytes")
_SWAP = ("container_swap_usage_bytes", "gauge", "[ALPHA] Swap that the container uses, in bytes; Linux alone")
_SWAP_LIMIT = ("container_swap_limit_bytes", "gauge", "[ALPHA] Swap limit of the container, in bytes; Linux alone")
_START = ("container_start_time_seconds", "gauge", "[STABLE] Start of the container, in seconds since the epoch")
_ERROR = ("resource_scrape_error", "gauge", "[STABLE] 1 if the usage of the node's pods could not be read, else 0")


def resource_page(found: FoundUsage | None) -> bytes:
    """Return the page; None = nothing could be read."""
    lines: dict[tuple[str, str, str], list[str]] = {}

    def add(family: tuple[str, str, str], labels: str, text: str) -> None:
        lines.setdefault(family, []).append(f"{family[0]}{labels} {text}\n")

    if found is not None:
        for family, text in _samples(found.node.cgroup, _NODE_CPU, _NODE_MEMORY, _NODE_SWAP):
            add(family, "", text)
        for pod in found.pods:
            labels = f"{{{label_pairs(('namespace', 'pod'), (pod.namespace, pod.name))}}}"
            if pod.cgroup is not None:
                for family, text in _samples(pod.cgroup, _POD_CPU, _POD_MEMORY, _POD_SWAP):
                    add(family, labels, text)
            for container in pod.containers:
                values = (container.name, pod.namespace, pod.name)
                labels = f"{{{label_pairs(('container', 'namespace', 'pod'), values)}}}"
                if container.created_at > 0:
                    add(_START, labels, repr(container.created_at / NANOSECONDS))
                if container.cgroup is not None:
                    for family, text in _samples(container.cgroup, _CPU, _MEMORY, _SWAP, _SWAP_LIMIT):
                        add(family, labels, text)
    add(_ERROR, "", str(int(found is None)))
    heads = {family: f"# HELP {family[0]} {family[2]}\n# TYPE {family[0]} {family[1]}\n" for family in lines}
    return "".join(heads[family] + "".join(lines[family]) for family in sorted(lines)).encode("utf-8", "replace")


def _samples(usage: CgroupUsage, *families: tuple[str, str, str]) -> Iterable[tuple[tuple[str, str, str], str]]:
    """Return the samples of CPU, memory, swap and swap limit, as far as there are families and figures."""
    limit = None
    if usage.swap_available is not None and usage.swap_usage is not None:
        limit = usage.swap_available + usage.swap_usage
    figures = (usage.cpu_nanoseconds, usage.memory_working_set, usage.swap_usage, limit)
    at = int(usage.time * MILLISECONDS)
    for family, figure in zip(families, figures, strict=False):
        if figure is not None:
            text = repr(figure / NANOSECONDS) if family[1] == "counter" else str(figure)
            yield family, f"{text} {at}"
