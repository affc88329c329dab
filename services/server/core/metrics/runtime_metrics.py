"""Forms the samples that the runtime has of pods and containers (CRI ListPodSandboxMetrics) as metrics of
/metrics/cadvisor. Pure.

The runtime names each metric and its labels; namespace, pod and container, which it need not know, are added.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from services.server.core.metrics.metrics_text import label_pairs
from shared.cri.usage import MetricDescriptor, RuntimeMetric, SandboxMetrics
from shared.model.runtime import RuntimePod

SANDBOX = "POD"  # what a sandbox has as the name of its container
NANOSECONDS_PER_MILLISECOND = 1_000_000


class RuntimeFamily(Struct):
    """One metric; `lines` are its samples, each with a line break."""

    kind: str  # counter or gauge
    help: str
    lines: list[str] = field(default_factory=list)


def runtime_families(
    descriptors: Mapping[str, MetricDescriptor], metrics: Iterable[SandboxMetrics], pods: Iterable[RuntimePod]
) -> dict[str, RuntimeFamily]:
    """Return the metrics by name. A sample without a descriptor, or whose labels are not those of its descriptor, is
    left out, as in the kubelet. `pods`: those that the runtime has."""
    sandboxes, containers = _names(pods)
    families: dict[str, RuntimeFamily] = {}
    for each in metrics:
        namespace, pod = sandboxes.get(each.id, ("", ""))
        rows = [(SANDBOX, each.samples)]
        rows += [(containers.get(container, ""), samples) for container, samples in each.containers.items()]
        for container, samples in rows:
            added = {"namespace": namespace, "pod": pod, "container": container}
            for sample in samples:
                descriptor = descriptors.get(sample.name)
                if descriptor is not None and len(descriptor.labels) == len(sample.labels):
                    family = families.setdefault(sample.name, RuntimeFamily(sample.kind, descriptor.help))
                    family.lines.append(_line(sample, descriptor, added))
    return families


def unknown_metrics(descriptors: Mapping[str, MetricDescriptor], metrics: Iterable[SandboxMetrics]) -> bool:
    """Return whether the runtime has metrics that it has not described: it was replaced by another version."""
    return any(sample.name not in descriptors for each in metrics for sample in _samples(each))


def _samples(metrics: SandboxMetrics) -> Iterator[RuntimeMetric]:
    yield from metrics.samples
    for samples in metrics.containers.values():
        yield from samples


def _names(pods: Iterable[RuntimePod]) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Return namespace and name of the pod by the id of each sandbox, and the name of each container by its id."""
    sandboxes: dict[str, tuple[str, str]] = {}
    containers: dict[str, str] = {}
    for pod in pods:
        sandboxes.update((sandbox.id, (pod.namespace, pod.name)) for sandbox in pod.sandboxes)
        containers.update((container.id, container.name) for container in pod.containers)
    return sandboxes, containers


def _line(sample: RuntimeMetric, descriptor: MetricDescriptor, added: dict[str, str]) -> str:
    labels = dict(zip(descriptor.labels, sample.labels, strict=True)) | added
    names = sorted(labels)
    at = f" {sample.nanoseconds // NANOSECONDS_PER_MILLISECOND}" if sample.nanoseconds else ""
    return f"{sample.name}{{{label_pairs(names, [labels[name] for name in names])}}} {sample.value}{at}\n"
