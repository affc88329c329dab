"""What the runtime reports of the usage of pods, from its messages."""

from cri_api.v1 import api_pb2

from shared.cri.usage import (
    MetricDescriptor,
    ReportedInterface,
    ReportedShare,
    RuntimeMetric,
    decode_descriptor,
    decode_metrics,
    decode_sandbox_stats,
)


def number(value: int) -> api_pb2.UInt64Value:
    return api_pb2.UInt64Value(value=value)


def test_the_stats_of_a_sandbox_are_read_as_far_as_they_are_there() -> None:
    stats = api_pb2.PodSandboxStats(attributes=api_pb2.PodSandboxAttributes(id="s"))
    stats.linux.cpu.timestamp = 1_500_000_000
    stats.linux.cpu.usage_core_nano_seconds.value = 7
    stats.linux.memory.timestamp = 2_500_000_000
    stats.linux.memory.working_set_bytes.value = 0
    stats.linux.io.psi.Some.Total = 5
    stats.linux.io.psi.Full.Avg10 = 0.5
    stats.linux.process.process_count.value = 3
    container = stats.linux.containers.add(attributes=api_pb2.ContainerAttributes(id="c"))
    container.swap.swap_usage_bytes.value = 9
    found = decode_sandbox_stats(stats)
    assert (found.id, found.usage.time, found.processes, found.interfaces) == ("s", 2.5, 3, None)
    assert found.usage.figures == {"cpu_nanoseconds": 7, "memory_working_set": 0}
    assert found.usage.pressures["io"].some == ReportedShare(total=5, avg10=0, avg60=0, avg300=0)
    assert found.usage.pressures["io"].full.avg10 == 0.5
    assert found.containers["c"].figures == {"swap_usage": 9}


def test_each_interface_is_there_once_the_default_one_first() -> None:
    stats = api_pb2.PodSandboxStats(attributes=api_pb2.PodSandboxAttributes(id="s"))
    network = stats.linux.network
    network.timestamp = 3_000_000_000
    network.interfaces.add(name="net1", rx_bytes=number(1))
    network.interfaces.add(name="eth0", rx_bytes=number(2))
    network.default_interface.name = "eth0"
    network.default_interface.rx_bytes.value = 2
    found = decode_sandbox_stats(stats)
    assert found.network_time == 3.0
    assert found.interfaces == (ReportedInterface(name="eth0", rx_bytes=2), ReportedInterface(name="net1", rx_bytes=1))


def test_metrics_have_their_kind_labels_and_time() -> None:
    metrics = api_pb2.PodSandboxMetrics(pod_sandbox_id="s")
    metrics.metrics.add(name="a", metric_type=api_pb2.GAUGE, label_values=["x"], value=number(4), timestamp=5)
    metrics.metrics.add(name="b", metric_type=7)
    metrics.container_metrics.add(container_id="c").metrics.add(name="d", value=number(6))
    found = decode_metrics(metrics)
    assert found.samples == (RuntimeMetric(name="a", kind="gauge", labels=("x",), value=4, nanoseconds=5),)
    assert found.containers == {"c": (RuntimeMetric(name="d", kind="counter", labels=(), value=6),)}
    described = api_pb2.MetricDescriptor(name="a", help="text", label_keys=["id"])
    assert decode_descriptor(described) == MetricDescriptor(name="a", help="text", labels=("id",))
