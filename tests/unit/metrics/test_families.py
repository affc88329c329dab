"""Every metric with a name of the kubelet is declared as node.md 9 lists it: type, labels and buckets."""

import re

import pytest

from shared.metrics.family import DEFAULT_BUCKETS, Kind, exponential
from tools.metrics_page import PAGE, REFERENCE, declared, page, reference

# Not in the tables with a type: node.md 9.3 lists them by name.
OF_A_PROCESS = {
    *("process_cpu_seconds_total", "process_resident_memory_bytes", "process_virtual_memory_bytes"),
    *("process_start_time_seconds", "process_open_fds", "process_max_fds"),
}


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split()))


KUBELETS = [name for name in declared() if not name.startswith("bulkhead_") and name not in OF_A_PROCESS]


def test_the_reference_is_read() -> None:
    """Some that are easily misread, so that the comparison below compares something."""
    found = reference()
    assert found["kubelet_running_containers"][:2] == (Kind.GAUGE, ("container_state",))
    assert found["kubelet_runtime_operations_errors_total"][:2] == (Kind.COUNTER, ("operation_type",))
    assert found["dra_grpc_operations_duration_seconds"][1] == ("driver_name", "method_name", "grpc_status_code")
    assert found["kubelet_http_inflight_requests"][1] == ("method", "path", "server_type", "long_running")
    assert found["prober_probe_total"][1] == ("probe_type", "result", "container", "pod", "namespace", "pod_uid")
    assert len(found) > 90


def test_a_metric_is_declared_as_the_kubelets(subtests: pytest.Subtests) -> None:
    for name in KUBELETS:
        with subtests.test(name):
            family = declared()[name]
            kind, labels, notes = reference()[name]
            assert (family.kind, family.labels) == (kind, labels)
            if kind is Kind.HISTOGRAM:
                assert family.buckets == pytest.approx(_buckets(notes, name))


def _buckets(notes: str, name: str) -> tuple[float, ...]:
    if growing := re.search(r"Exp\(([\d.]+),([\d.]+),(\d+)\)", notes):
        return exponential(float(growing[1]), float(growing[2]), int(growing[3]))
    if between := re.search(r"ExpRange\(([\d.]+),([\d.]+),(\d+)\)", notes):
        lowest, highest, count = float(between[1]), float(between[2]), int(between[3])
        return exponential(lowest, (highest / lowest) ** (1 / (count - 1)), count)
    if listed := re.search(r"(?:^|buckets:? )((?:[\d.]+ )+[\d.]+)", notes):
        return _numbers(listed[1])
    if notes.strip() == "podStart":
        text = REFERENCE.read_text().partition("podStart buckets: ")[2].partition("|")[0]
        return _numbers(text)
    return DEFAULT_BUCKETS


def test_names_and_labels_are_valid_and_helps_are_sentences() -> None:
    for family in declared().values():
        assert re.fullmatch(r"[a-z_]+", family.name), family.name
        assert all(re.fullmatch(r"[a-z_]+", label) for label in family.labels), family.name
        assert family.help.endswith(".") and "\n" not in family.help, family.name
        assert not family.name.startswith("bulkhead_") or family.labels[:1] in (("process",), ()), family.name


def test_the_page_is_of_these_declarations() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tools.metrics_page"
    assert set(declared()) >= OF_A_PROCESS
