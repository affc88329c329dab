"""Where the cgroups of pods and QoS classes are, and what they are given."""

from typing import Any

import pytest

from services.podsync.core.cgroups.class_requests import ClassRequests, RequestSums
from services.podsync.core.cgroups.pod_cgroup import (
    UNLIMITED_HUGEPAGES,
    CgroupValues,
    pod_cgroup_values,
    qos_cgroup_name,
    qos_cgroup_values,
)
from services.podsync.core.node.node_facts import NodeFacts
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.podspec.qos import QosClass

NODE = NodeFacts(node_name="n", page_sizes=("2MB", "1GB"))


def a_pod(*resources: dict[str, Any], uid: str = "1a-2b", **spec: Any) -> Object:
    containers = [{"name": f"c{index}", "resources": each} for index, each in enumerate(resources or ({},))]
    return {"metadata": {"uid": uid}, "spec": {"containers": containers, **spec}}


BURSTABLE = {"requests": {"cpu": "100m"}}
GUARANTEED = {kind: {"cpu": "250m", "memory": "64Mi"} for kind in ("requests", "limits")}


def test_qos_classes_have_their_own_place_but_guaranteed() -> None:
    assert qos_cgroup_name(QosClass.GUARANTEED, NODE) == "/kubepods"
    assert qos_cgroup_name(QosClass.BURSTABLE, NODE) == "/kubepods/burstable"
    assert qos_cgroup_name(QosClass.BEST_EFFORT, NODE) == "/kubepods/besteffort"


NO_HUGEPAGES = {"2MB": 0, "1GB": 0}
LIMITED = {"limits": {"cpu": "1", "memory": "1Mi"}}
SIDECAR = {"name": "s", "restartPolicy": "Always", "resources": LIMITED}


@pytest.mark.parametrize(
    ("pod", "wanted"),
    [
        (a_pod(BURSTABLE, {"limits": {"cpu": "1", "memory": "1Mi"}}), CgroupValues(cpu_shares=102)),
        (
            a_pod({"limits": {"cpu": "500m"}}, {"limits": {"cpu": "1", "memory": "1Mi"}}),
            CgroupValues(cpu_shares=1536, cpu_quota=150000, cpu_period=100000),
        ),
        (
            a_pod({}, resources={"requests": {"cpu": "1"}, "limits": {"memory": "2Mi"}}),
            CgroupValues(cpu_shares=1024, memory_limit=2 << 20),
        ),
        (  # an init container runs within the limits of the sidecars before it
            a_pod(LIMITED, initContainers=[SIDECAR, {"name": "i"}]),
            CgroupValues(cpu_shares=2048, cpu_quota=200000, cpu_period=100000, memory_limit=2 << 20),
        ),
        (a_pod(LIMITED, initContainers=[{"name": "i"}, SIDECAR]), CgroupValues(cpu_shares=2048)),
        (a_pod({}, initContainers=[SIDECAR]), CgroupValues(cpu_shares=1024)),
    ],
)
def test_a_limit_is_written_only_when_every_container_has_one(pod: Object, wanted: CgroupValues) -> None:
    values = pod_cgroup_values(pod, NODE)
    assert values == replace(wanted, hugepage_limits=NO_HUGEPAGES)


def with_uid(pod: Object, uid: str) -> Object:
    return {**pod, "metadata": {**pod["metadata"], "uid": uid}}


def test_the_burstable_class_has_the_shares_of_its_pods() -> None:
    every = [a_pod(BURSTABLE), a_pod({"requests": {"cpu": "1500m"}}), a_pod(GUARANTEED), a_pod()]
    requested = RequestSums().total(with_uid(pod, f"u{number}") for number, pod in enumerate(every))
    unlimited = {"2MB": UNLIMITED_HUGEPAGES, "1GB": UNLIMITED_HUGEPAGES}
    wanted = CgroupValues(cpu_shares=1638, hugepage_limits=unlimited)
    assert qos_cgroup_values(QosClass.BURSTABLE, requested, NODE) == wanted
    assert qos_cgroup_values(QosClass.BURSTABLE, ClassRequests(), NODE).cpu_shares == 2
    assert qos_cgroup_values(QosClass.BEST_EFFORT, requested, NODE).cpu_shares == 2
    assert qos_cgroup_values(QosClass.GUARANTEED, requested, NODE) == CgroupValues(hugepage_limits=unlimited)


def test_the_requests_follow_a_pod_that_changes_and_one_that_ends() -> None:
    requests, first = RequestSums(), with_uid(a_pod({"requests": {"cpu": "100m"}}), "u1")
    other = with_uid(a_pod({"requests": {"cpu": "20m", "memory": "1Mi"}}), "u2")
    assert requests.total([first, other]) == requests.total([first, other])
    assert requests.total([first, other]) == ClassRequests(burstable_cpu=120, burstable_memory=1 << 20)
    assert requests.total([with_uid(a_pod({"requests": {"cpu": "300m"}}), "u1"), other]).burstable_cpu == 320
    guaranteed = with_uid(a_pod(GUARANTEED), "u3")
    assert requests.total([other, guaranteed]) == ClassRequests(
        burstable_cpu=20, burstable_memory=1 << 20, guaranteed_memory=64 << 20
    )
    assert requests.total([]) == ClassRequests()
