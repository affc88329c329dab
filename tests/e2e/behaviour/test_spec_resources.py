"""What cgroups hold for containers and pods, read on the host; and who is killed first when memory runs out."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shared.model.objects import Object
from tests.behaviour import Node, container, pod_of, status_of

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]

MI = 1 << 20
V2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()
SMALL, LARGE = {"cpu": "100m", "memory": "64Mi"}, {"cpu": "200m", "memory": "128Mi"}
V1_FILES = {
    "shares": ("cpu", "cpu.shares"),
    "quota": ("cpu", "cpu.cfs_quota_us"),
    "period": ("cpu", "cpu.cfs_period_us"),
    "memory": ("memory", "memory.limit_in_bytes"),
    "swap": ("memory", "memory.memsw.limit_in_bytes"),
}


def limited(name: str, requests: Object | None = None, limits: Object | None = None) -> Object:
    given = {"requests": requests, "limits": limits}
    return container(name, resources={kind: amounts for kind, amounts in given.items() if amounts})


def resizable(requests: Object, limits: Object) -> Object:
    """A pod that stays the same one when its manifest is changed, for it has a UID of its own."""
    pod = pod_of("spec-resized", limited("c", requests, limits))
    pod["metadata"]["uid"] = "5f7c1f0e-6a0b-4f1e-9d0c-2f1f5a2f7b11"
    return pod


PODS = {
    "spec-resized": resizable(SMALL, LARGE),
    "spec-burst": pod_of("spec-burst", limited("c", SMALL, LARGE), limited("d", {"cpu": "50m"})),
    "spec-sure": pod_of("spec-sure", limited("c", SMALL, SMALL)),
    "spec-best": pod_of("spec-best", limited("c")),
    "spec-level": pod_of("spec-level", limited("c"), limited("d", {"memory": "16Mi"}),
                         resources={"requests": SMALL, "limits": LARGE}),
}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def pods(node: Node) -> AsyncIterator[None]:
    node.put(PODS)
    yield
    await node.take_away(PODS)


async def cgroup_of(node: Node, pod: str, name: str = "c") -> str:
    """The path of the container's cgroup, once it runs."""
    await node.wait_static(pod, lambda p: "running" in (status_of(p, name).get("state") or {}), f"{name} to run")
    lines = (await node.inside(pod, name, "cat", "/proc/1/cgroup")).splitlines()
    paths = {line.split(":")[1]: line.split(":", 2)[2] for line in lines}
    return paths["memory"]


def value(cgroup: str, what: str) -> int:
    controller, file = V1_FILES[what]
    return int(Path(f"/sys/fs/cgroup/{controller}{cgroup}/{file}").read_text())


def parent(cgroup: str) -> str:
    return cgroup.rsplit("/", 1)[0]


needs_v1 = pytest.mark.skipif(V2, reason="reads the files of cgroup v1")


@needs_v1
async def test_requests_and_limits_of_a_container(node: Node) -> None:
    cgroup = await cgroup_of(node, "spec-burst")
    found = {what: value(cgroup, what) for what in ("shares", "quota", "period", "memory")}
    assert found == {"shares": 102, "quota": 20000, "period": 100000, "memory": 128 * MI}


async def test_a_resize_is_refused_and_the_container_goes_on_with_what_it_has(node: Node) -> None:
    cgroup = await cgroup_of(node, "spec-resized")
    before = status_of(await node.wait_phase("spec-resized", "Running"), "c")
    node.put({"spec-resized": resizable(LARGE, {"cpu": "400m", "memory": "256Mi"})})

    def refused(pod: Object) -> bool:
        return any(c["type"] == "PodResizePending" for c in pod["status"]["conditions"])

    pod = await node.wait_static("spec-resized", refused, "to show that its resize is pending")
    condition = next(c for c in pod["status"]["conditions"] if c["type"] == "PodResizePending")
    assert (condition["status"], condition["reason"]) == ("True", "Infeasible")
    assert status_of(pod, "c") == before and before["allocatedResources"] == SMALL
    assert V2 or value(cgroup, "memory") == 128 * MI
    await node.wait_event("spec-resized", "ResizeInfeasible", '"cpu":"400m"')
    node.put({"spec-resized": resizable(SMALL, LARGE)})
    await node.wait_static("spec-resized", lambda p: not refused(p), "to show no resize any more")


@needs_v1
async def test_a_container_with_a_memory_limit_does_not_swap(node: Node) -> None:
    cgroup = await cgroup_of(node, "spec-burst")
    assert value(cgroup, "swap") == 128 * MI


@needs_v1
async def test_a_container_without_limits_beside_one_with(node: Node) -> None:
    cgroup = await cgroup_of(node, "spec-burst", "d")
    assert (value(cgroup, "shares"), value(cgroup, "quota")) == (51, -1)
    assert value(cgroup, "memory") > 1 << 60


@needs_v1
async def test_a_burstable_pods_cgroup_has_the_sum_and_no_limit_that_not_all_have(node: Node) -> None:
    pod = parent(await cgroup_of(node, "spec-burst"))
    assert "/kubepods/burstable/pod" in pod
    assert (value(pod, "shares"), value(pod, "quota")) == (153, -1)
    assert value(pod, "memory") > 1 << 60


@needs_v1
async def test_a_guaranteed_pods_cgroup_has_its_limits(node: Node) -> None:
    cgroup = await cgroup_of(node, "spec-sure")
    pod = parent(cgroup)
    assert "/kubepods/pod" in pod
    wanted = {"shares": 102, "quota": 10000, "period": 100000, "memory": 64 * MI}
    assert {what: value(pod, what) for what in wanted} == wanted
    assert {what: value(cgroup, what) for what in wanted} == wanted


@needs_v1
async def test_a_best_effort_pods_cgroup_has_the_least(node: Node) -> None:
    cgroup = await cgroup_of(node, "spec-best")
    assert "/kubepods/besteffort/pod" in cgroup
    assert (value(cgroup, "shares"), value(parent(cgroup), "shares")) == (2, 2)
    assert (value(cgroup, "quota"), value(parent(cgroup), "quota")) == (-1, -1)


@needs_v1
async def test_limits_of_the_pod_hold_for_all_its_containers_together(node: Node) -> None:
    cgroup = await cgroup_of(node, "spec-level")
    pod = parent(cgroup)
    wanted = {"shares": 102, "quota": 20000, "memory": 128 * MI}
    assert {what: value(pod, what) for what in wanted} == wanted
    assert (value(cgroup, "quota"), value(cgroup, "memory")) == (20000, 128 * MI)


@pytest.mark.parametrize(
    ("pod", "name", "wanted"),
    [("spec-sure", "c", -997), ("spec-best", "c", 1000), ("spec-burst", "d", 999)],
)
async def test_who_is_killed_first_when_memory_runs_out(node: Node, pod: str, name: str, wanted: int) -> None:
    await cgroup_of(node, pod, name)
    found = int(await node.inside(pod, name, "cat", "/proc/1/oom_score_adj"))
    allowed = int(Path("/proc/self/oom_score_adj").read_text())  # nobody may go below what he has without a right to
    assert found in (wanted, max(wanted, allowed))


async def test_the_class_of_each_pod_is_in_its_status(node: Node) -> None:
    for pod, qos in (("spec-burst", "Burstable"), ("spec-sure", "Guaranteed"), ("spec-best", "BestEffort")):
        await cgroup_of(node, pod)
        assert (await node.wait_phase(pod, "Running"))["status"]["qosClass"] == qos
