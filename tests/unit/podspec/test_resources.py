"""What pods ask for in total, their QoS class, and the kernel's units for it."""

from typing import Any

import pytest

from shared.model.objects import Object
from shared.podspec.qos import QosClass, qos_class
from shared.podspec.resources import (
    hugepage_size,
    pod_limits,
    pod_requests,
    quota,
    shares,
    status_resources,
    weight,
    written,
)


def a_pod(*containers: Any, init: Any = (), **spec: Any) -> Object:
    return {"spec": {"containers": list(containers), "initContainers": list(init), **spec}}


def asking(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": requests or {}, "limits": limits or {}}, **more}


@pytest.mark.parametrize(
    ("milli", "wanted"),
    [(0, 2), (1, 2), (100, 102), (250, 256), (500, 512), (1000, 1024), (2000, 2048), (300_000, 262_144)],
)
def test_shares_of_a_request(milli: int, wanted: int) -> None:
    assert shares(milli) == wanted


@pytest.mark.parametrize(("milli", "wanted"), [(0, 0), (5, 1000), (100, 10_000), (500, 50_000), (1500, 150_000)])
def test_quota_of_a_limit(milli: int, wanted: int) -> None:
    assert quota(milli, 100_000) == wanted


@pytest.mark.parametrize(("of", "wanted"), [(0, 0), (2, 1), (102, 4), (512, 20), (1024, 39), (262_144, 10_000)])
def test_weight_of_shares(of: int, wanted: int) -> None:
    assert weight(of) == wanted


@pytest.mark.parametrize(
    ("resource", "size"),
    [("hugepages-2Mi", "2MB"), ("hugepages-1Gi", "1GB"), ("hugepages-64Ki", "64KB"), ("cpu", ""), ("hugepages-x", "")],
)
def test_the_kernels_name_of_a_huge_page(resource: str, size: str) -> None:
    assert hugepage_size(resource) == size


def test_init_containers_count_only_beyond_what_runs_later() -> None:
    sidecar = asking({"cpu": "200m"}, restartPolicy="Always")
    small, large = asking({"cpu": "100m"}), asking({"cpu": "1"})
    main = asking({"cpu": "300m", "memory": "64Mi"})
    assert written(pod_requests(a_pod(main, main))) == {"cpu": "600m", "memory": "128Mi"}
    assert written(pod_requests(a_pod(main, init=[small, sidecar]))) == {"cpu": "500m", "memory": "64Mi"}
    assert written(pod_requests(a_pod(main, init=[sidecar, large]))) == {"cpu": "1200m", "memory": "64Mi"}
    assert written(pod_requests(a_pod(main, init=[large, sidecar]))) == {"cpu": "1", "memory": "64Mi"}


def test_overhead_is_added_to_requests_and_to_limits_that_exist() -> None:
    pod = a_pod(asking({"cpu": "1"}, {"memory": "64Mi"}), overhead={"cpu": "250m", "memory": "6Mi"})
    assert written(pod_requests(pod)) == {"cpu": "1250m", "memory": "6Mi"}
    assert written(pod_limits(pod)) == {"memory": "70Mi"}
    assert written(pod_requests(pod, overhead=False)) == {"cpu": "1"}


def test_pod_level_resources_stand_in_for_the_sum() -> None:
    pod = a_pod(asking({"cpu": "1", "memory": "1Mi"}), resources={"requests": {"cpu": "2", "example.com/x": "1"}})
    assert written(pod_requests(pod)) == {"cpu": "2", "memory": "1Mi"}


BOTH = {"cpu": "1", "memory": "1Gi"}


def test_the_qos_class_follows_cpu_and_memory(subtests: pytest.Subtests) -> None:
    for pod, wanted in [
        (a_pod({}), QosClass.BEST_EFFORT),
        (a_pod(asking({"cpu": "0"})), QosClass.BEST_EFFORT),
        (a_pod(asking({"example.com/gpu": "1"}, {"example.com/gpu": "1"})), QosClass.BEST_EFFORT),
        (a_pod(asking({"cpu": "1m"})), QosClass.BURSTABLE),
        (a_pod(asking(BOTH, BOTH)), QosClass.GUARANTEED),
        (a_pod(asking(BOTH, {**BOTH, "cpu": "1000m"})), QosClass.GUARANTEED),
        (a_pod(asking(BOTH, BOTH), {}), QosClass.BURSTABLE),
        (a_pod(asking(BOTH, BOTH), init=[asking({"cpu": "1"})]), QosClass.BURSTABLE),
        (a_pod(asking({"cpu": "1"}, {"cpu": "1"})), QosClass.BURSTABLE),
        (a_pod(asking({"cpu": "500m", "memory": "1Gi"}, BOTH)), QosClass.BURSTABLE),
        (a_pod(asking(BOTH, BOTH), resources={"requests": {"cpu": "1"}}), QosClass.BURSTABLE),
        (a_pod({}, resources={"requests": BOTH, "limits": BOTH}), QosClass.GUARANTEED),
        (a_pod(asking({"cpu": "nonsense"})), QosClass.BEST_EFFORT),
    ]:
        with subtests.test(f"{pod!r:.80}"):
            assert qos_class(pod) is wanted


def test_a_qos_class_in_the_status_stays() -> None:
    assert qos_class({**a_pod({}), "status": {"qosClass": "Guaranteed"}}) is QosClass.GUARANTEED


def test_the_status_shows_what_was_allocated() -> None:
    assert status_resources(a_pod({})) == {"resources": {}}
    assert status_resources(a_pod(asking({"cpu": "1600m"}, {"memory": "128Mi"}))) == {
        "resources": {"limits": {"memory": "128Mi"}, "requests": {"cpu": "1600m"}},
        "allocatedResources": {"cpu": "1600m"},
    }
