"""/metrics/cadvisor with the samples that the runtime has of pods: names, labels, times, one family of a name."""

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from services.server.core.metrics.cadvisor_metrics import cadvisor_page
from services.server.core.metrics.runtime_metrics import runtime_families, unknown_metrics
from shared.cri.usage import MetricDescriptor, RuntimeMetric, SandboxMetrics
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, RuntimePod, Sandbox, SandboxState
from tests.unit.server.test_cadvisor_page import FOUND, ROOT, USAGE

CPU = "container_cpu_usage_seconds_total"
SOCKETS = "container_sockets"
DESCRIPTORS = {
    CPU: MetricDescriptor(name=CPU, help="CPU", labels=("id", "name")),
    SOCKETS: MetricDescriptor(name=SOCKETS, help="one\nof 'two'", labels=("id", "pod")),
}
POD = RuntimePod(
    uid="u",
    name="web",
    namespace="ns",
    observed_at=0.0,
    sandboxes=(Sandbox(id="s", attempt=0, state=SandboxState.READY, created_at=1),),
    containers=(
        Container(
            id="c", name="main", attempt=0, sandbox_id="s", state=ContainerState.RUNNING, created_at=1, image="i"
        ),
    ),
)


def sample(name: str, value: int, *labels: str, nanoseconds: int = 0) -> RuntimeMetric:
    return RuntimeMetric(name=name, kind="counter", labels=labels, value=value, nanoseconds=nanoseconds)


def page(*metrics: SandboxMetrics) -> dict[str, Metric]:
    node = replace(FOUND, cgroups=(replace(ROOT, usage=USAGE),))
    text = cadvisor_page(node, runtime_families(DESCRIPTORS, metrics, [POD])).decode()
    assert text.count(f"# TYPE {CPU} ") == 1, "a family of two parts is no page that Prometheus reads"
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_containers_and_sandboxes_have_the_names_of_the_pod() -> None:
    metrics = SandboxMetrics(
        id="s",
        samples=(sample(CPU, 3, "/s", "s"),),
        containers={"c": (sample(CPU, 4, "/c", 'a"b', nanoseconds=1_700_000_000_250_000_000),)},
    )
    node, *found = page(metrics)["container_cpu_usage_seconds"].samples
    assert node.labels["id"] == "/"
    assert [(one.labels, one.value) for one in found] == [
        ({"container": "POD", "id": "/s", "name": "s", "namespace": "ns", "pod": "web"}, 3.0),
        ({"container": "main", "id": "/c", "name": 'a"b', "namespace": "ns", "pod": "web"}, 4.0),
    ]
    assert (found[0].timestamp, float(found[1].timestamp or 0)) == (None, 1_700_000_000.25)


def test_a_metric_that_cgroups_have_not_is_shown_with_its_own_text_and_labels() -> None:
    metrics = SandboxMetrics(id="s", containers={"c": (replace(sample(SOCKETS, 5, "/c", "other"), kind="gauge"),)})
    family = page(metrics)[SOCKETS]
    assert (family.type, family.documentation) == ("gauge", "one\nof 'two'")
    assert family.samples[0].labels == {"container": "main", "id": "/c", "namespace": "ns", "pod": "web"}


def test_what_is_not_described_so_is_left_out() -> None:
    metrics = SandboxMetrics(id="s", samples=(sample("other", 1), sample(CPU, 1, "too few")))
    found = page(metrics)
    assert "other" not in found and len(found["container_cpu_usage_seconds"].samples) == 1
    assert unknown_metrics(DESCRIPTORS, [metrics])
    assert not unknown_metrics(DESCRIPTORS, [replace(metrics, samples=(sample(CPU, 1),))])
    assert unknown_metrics(DESCRIPTORS, [SandboxMetrics(id="s", containers={"c": (sample("other", 1),)})])


def test_a_pod_that_is_not_known_yet_has_no_names() -> None:
    metrics = SandboxMetrics(id="new", containers={"c2": (sample(CPU, 1, "/c2", "n"),)})
    labels = page(metrics)["container_cpu_usage_seconds"].samples[-1].labels
    assert (labels["container"], labels["namespace"], labels["pod"]) == ("", "", "")
