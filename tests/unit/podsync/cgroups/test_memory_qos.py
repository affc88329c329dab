"""qosReserved and the gate MemoryQoS: limits of classes, and what protects and throttles memory; worked by hand."""

from pathlib import Path
from typing import Any

import pytest

from services.podsync.core.cgroups.class_requests import ClassRequests
from services.podsync.core.cgroups.memory_qos import MIN_LIMIT_BYTES, class_limit, compatibility_warning, throttled_at
from services.podsync.core.cgroups.node_cgroup import Reservation, reservation_values
from services.podsync.core.cgroups.pod_cgroup import CgroupValues, pod_cgroup_values, qos_cgroup_values
from services.podsync.core.cgroups.systemd_properties import limit_properties
from services.podsync.core.cri.container_resources import container_resources
from services.podsync.core.node.node_facts import NodeFacts
from shared.model.objects import Object
from shared.podspec.qos import QosClass
from tests.unit.podsync.cgroups.test_cgroup_config import a_pod
from tests.unit.podsync.cgroups.test_node_cgroups import Stage

MIB = 1 << 20
GIB = 1 << 30
REQUESTED = ClassRequests(burstable_memory=2 * GIB, guaranteed_memory=GIB)


def facts(**given: Any) -> NodeFacts:
    return NodeFacts(node_name="n", enforced_memory=8 * GIB, single_process_oom_kill=True, **given)


THROTTLES = facts(memory_qos=True)
PROTECTS = facts(memory_qos=True, protects_memory=True)


def amounts(requests: str = "", limits: str = "") -> dict[str, Any]:
    return {kind: {"memory": text} for kind, text in (("requests", requests), ("limits", limits)) if text}


@pytest.mark.parametrize(
    ("share", "burstable", "best_effort"),
    [
        (0, 8 * GIB, 8 * GIB),
        (50, 8 * GIB - GIB // 2, 8 * GIB - GIB // 2 - GIB),
        (100, 7 * GIB, 5 * GIB),
        (33, 8 * GIB - GIB * 33 // 100, 8 * GIB - GIB * 33 // 100 - 2 * GIB * 33 // 100),
    ],
)
def test_lower_classes_are_kept_from_a_share_of_the_requests(share: int, burstable: int, best_effort: int) -> None:
    node = facts(qos_reserved_memory=share)
    assert class_limit(QosClass.BURSTABLE, REQUESTED, node) == burstable
    assert class_limit(QosClass.BEST_EFFORT, REQUESTED, node) == best_effort
    assert class_limit(QosClass.GUARANTEED, REQUESTED, node) is None


def test_a_class_for_which_nothing_is_left_has_the_smallest_limit() -> None:
    requested = ClassRequests(burstable_memory=8 * GIB, guaranteed_memory=GIB)
    assert class_limit(QosClass.BEST_EFFORT, requested, facts(qos_reserved_memory=100)) == MIN_LIMIT_BYTES


@pytest.mark.parametrize("node", [facts(), NodeFacts(node_name="n", qos_reserved_memory=50)])
def test_without_the_key_or_the_memory_of_the_node_nothing_is_reserved(node: NodeFacts) -> None:
    assert class_limit(QosClass.BURSTABLE, REQUESTED, node) is None


@pytest.mark.parametrize(
    ("qos", "node", "wanted"),
    [
        (QosClass.GUARANTEED, PROTECTS, {"memory_min": 3 * GIB}),
        (QosClass.BURSTABLE, PROTECTS, {"memory_low": 2 * GIB}),
        (QosClass.BEST_EFFORT, PROTECTS, {}),
        (QosClass.GUARANTEED, THROTTLES, {"memory_min": 0}),  # of an earlier policy nothing stays
        (QosClass.BURSTABLE, THROTTLES, {"memory_low": 0}),
        (QosClass.GUARANTEED, facts(), {}),
        (QosClass.BURSTABLE, facts(), {}),
        (QosClass.GUARANTEED, facts(resets_memory_qos=True), {"memory_min": 0}),
        (QosClass.BURSTABLE, facts(resets_memory_qos=True), {"memory_low": 0}),
        (QosClass.BEST_EFFORT, facts(resets_memory_qos=True), {}),
    ],
)
def test_classes_are_protected_by_their_requests(qos: QosClass, node: NodeFacts, wanted: dict[str, int]) -> None:
    values = qos_cgroup_values(qos, REQUESTED, node)
    found = {"memory_min": values.memory_min, "memory_low": values.memory_low}
    assert {name: amount for name, amount in found.items() if amount is not None} == wanted


GUARANTEED = {kind: {"cpu": "1", "memory": "64Mi"} for kind in ("requests", "limits")}


@pytest.mark.parametrize(
    ("pod", "node", "wanted"),
    [
        (a_pod(GUARANTEED), PROTECTS, (64 * MIB, None)),
        (a_pod(amounts("32Mi"), amounts("16Mi")), PROTECTS, (None, 48 * MIB)),
        (a_pod({"requests": {"cpu": "1"}}), PROTECTS, (None, None)),
        (a_pod(), PROTECTS, (None, None)),
        (a_pod(GUARANTEED), THROTTLES, (None, None)),
        (a_pod(GUARANTEED), facts(), (None, None)),
    ],
)
def test_a_pod_is_protected_by_its_request(pod: Object, node: NodeFacts, wanted: tuple[int | None, int | None]) -> None:
    values = pod_cgroup_values(pod, node)
    assert (values.memory_min, values.memory_low) == wanted


@pytest.mark.parametrize(
    ("request_", "limit", "factor", "high"),
    [
        (100 * MIB, 200 * MIB, 0.9, 190 * MIB),
        (100 * MIB, 200 * MIB, 0.5, 150 * MIB),
        (100 * MIB, 200 * MIB, 1.0, 200 * MIB),
        (1, 10_000, 0.9, 8192),  # 9000.1, in pages
        (0, 1 << 20, 0.9, 942_080),  # 943718.4
        (100 * MIB, 0, 0.5, 4 * GIB + 50 * MIB),  # without a limit up to what pods may have
        (100 * MIB, 100 * MIB, 0.9, None),
        (4097, 4098, 0.9, None),  # the page below the request
        (0, 4096, 0.9, None),  # less than a page
        (0, 1 << 20, 0.0, None),  # 1.37 throttles only with a factor that is given
    ],
)
def test_a_container_is_throttled_between_request_and_limit(
    request_: int, limit: int, factor: float, high: int | None
) -> None:
    assert throttled_at(request_, limit, facts(memory_qos=True, memory_throttling_factor=factor)) == high


def test_without_the_gate_or_the_memory_of_the_node_no_container_is_throttled() -> None:
    assert throttled_at(0, 1 << 30, facts()) is None
    assert throttled_at(0, 0, NodeFacts(node_name="n", memory_qos=True)) is None


@pytest.mark.parametrize(
    ("resources", "node", "unified"),
    [
        (GUARANTEED, PROTECTS, {"memory.min": str(64 * MIB)}),
        (amounts("100Mi", "200Mi"), PROTECTS, {"memory.low": str(100 * MIB), "memory.high": str(190 * MIB)}),
        (amounts("100Mi", "200Mi"), THROTTLES, {"memory.high": str(190 * MIB)}),
        ({}, PROTECTS, {"memory.high": str(int(0.9 * 8 * GIB) // 4096 * 4096)}),
        (amounts("100Mi", "200Mi"), facts(), {}),
    ],
)
def test_the_runtime_gets_the_files_of_a_container(
    resources: dict[str, Any], node: NodeFacts, unified: dict[str, str]
) -> None:
    pod = a_pod(resources)
    assert container_resources(pod, pod["spec"]["containers"][0], node).get("unified", {}) == unified


def test_the_memory_reserved_for_daemons_is_protected_with_the_gate() -> None:
    reservation = Reservation(kind="kube", cgroup="/kube", amounts={"cpu": "1", "memory": "1Gi"}, compressible=False)
    assert reservation_values(reservation, protect_memory=True).memory_min == GIB
    assert reservation_values(reservation).memory_min is None
    compressible = Reservation(kind="kube", cgroup="/kube", amounts={"memory": "1Gi"}, compressible=True)
    assert reservation_values(compressible, protect_memory=True).memory_min is None


def test_systemd_gets_the_protection_on_v2_alone() -> None:
    values = CgroupValues(memory_min=4096, memory_low=0)
    assert limit_properties(values, v2=True, version=252) == [("MemoryMin", "t", 4096), ("MemoryLow", "t", 0)]
    assert limit_properties(values, v2=False, version=252) == []


@pytest.mark.parametrize(
    ("on_v2", "kernel", "text"),
    [(True, (5, 9), None), (True, (6, 1), None), (True, (5, 8), "kernel 5.8 may"), (False, (6, 1), "no effect")],
)
def test_a_machine_without_what_the_gate_needs_gets_a_warning(
    on_v2: bool, kernel: tuple[int, int], text: str | None
) -> None:
    warning = compatibility_warning(on_v2=on_v2, kernel=kernel)
    assert warning is None if text is None else text in str(warning)


def pod_requesting(memory: str) -> Object:
    return a_pod(amounts(memory), uid="u1")


async def test_a_limit_that_v1_refuses_is_set_to_the_usage(tmp_path: Path) -> None:
    stage = Stage(tmp_path, enforced_memory=GIB, qos_reserved_memory=100)
    stage.make("/kubepods/besteffort", "/kubepods/burstable")
    (tmp_path / "cg/memory/kubepods/besteffort/memory.usage_in_bytes").write_text(str(900 * MIB))
    stage.active = [pod_requesting("512Mi")]
    tried = []

    async def write(name: str, values: CgroupValues) -> None:
        tried.append((name, values.memory_limit))
        if name.endswith("besteffort") and values.memory_limit == 512 * MIB:
            raise OSError("unable to set memory limit to 536870912 (current usage: 943718400, peak usage: 943718400)")

    stage.driver.write = write  # type: ignore[method-assign]
    await stage.pods.write_classes(lambda: stage.active)
    assert tried == [
        ("/kubepods/besteffort", 512 * MIB),
        ("/kubepods/besteffort", 900 * MIB),
        ("/kubepods/burstable", GIB),
    ]


async def test_a_limit_that_is_refused_without_usage_above_it_is_an_error(tmp_path: Path) -> None:
    stage = Stage(tmp_path, enforced_memory=GIB, qos_reserved_memory=100)
    stage.driver.refuses["/kubepods/besteffort"] = "read-only file system"
    with pytest.raises(OSError, match="read-only"):
        await stage.pods.write_classes(list)
    assert stage.names() == ["/kubepods/burstable"]
