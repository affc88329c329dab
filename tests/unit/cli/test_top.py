"""CPU and memory of pods and containers as a table."""

import pytest

from bus.messages.usage import CgroupUsage, ContainerUsage, FoundUsage, NodeUsage, PodUsage
from services.cli.agent.top import choose_pods, lacks_cpu, usage_lines, with_cpu
from shared.errors import OperatorError
from shared.model.frozen_copy import replace


def cgroup(millicores: int | None, mebibytes: int) -> CgroupUsage:
    nanocores = None if millicores is None else millicores * 1_000_000
    return CgroupUsage(time=1.0, cpu_nanocores=nanocores, memory_working_set=mebibytes << 20)


def pod(name: str, usage: CgroupUsage | None) -> PodUsage:
    container = ContainerUsage(id="c", name="main", created_at=1, cgroup=usage)
    return PodUsage(
        uid=name, name=name, namespace="shop", created_at=1, read_at=1.0, cgroup=usage, containers=(container,)
    )


NODE = NodeUsage(read_at=1.0, started_at=1.0, cgroup=cgroup(1500, 4096), memory_capacity=8 << 30)
PODS = (pod("idle", cgroup(1, 5)), pod("busy", cgroup(700, 64)), pod("new", cgroup(None, 2)), pod("gone", None))


def test_the_busiest_pod_is_first_with_its_share_of_the_node_and_what_is_not_known_is_a_dash() -> None:
    lines = usage_lines(FoundUsage(node=NODE, pods=PODS), containers=False, width=0, cores=4)
    assert [line.split() for line in lines] == [
        ["NAME", "CPU", "CPU%", "MEMORY", "MEMORY%"],
        ["node", "1500m", "38%", "4.0", "GiB", "50%"],  # 1.5 of 4 cores, 4 of 8 GiB
        ["shop/busy", "700m", "18%", "64", "MiB", "1%"],
        ["shop/idle", "1m", "0%", "5.0", "MiB", "0%"],
        ["shop/new", "-", "-", "2.0", "MiB", "0%"],
        ["shop/gone", "-", "-", "-", "-"],
    ]


def test_without_a_capacity_there_are_no_percent() -> None:
    found = FoundUsage(node=replace(NODE, memory_capacity=None))
    assert usage_lines(found, containers=False, width=0, cores=2)[1].split() == [
        "node",
        "1500m",
        "75%",
        "4.0",
        "GiB",
        "-",
    ]


def test_containers_are_below_their_pod() -> None:
    lines = usage_lines(FoundUsage(node=NODE, pods=PODS[1:2]), containers=True, width=0, cores=4)
    assert [line.split()[0] for line in lines] == ["NAME", "node", "shop/busy", "main"]


@pytest.mark.parametrize(
    ("name", "namespace", "expected"),
    [
        ("", "", ["idle", "web-here"]),
        ("web", "", ["web-here"]),
        ("shop/web-here", "", ["web-here"]),
        ("idle", "shop", ["idle"]),
        ("", "other", []),
    ],
)
def test_a_pod_is_chosen_by_its_name_its_namespace_or_the_name_of_its_manifest(
    name: str, namespace: str, expected: list[str]
) -> None:
    found = FoundUsage(node=NODE, pods=(PODS[0], pod("web-here", None)))
    assert [one.name for one in choose_pods(found, name, namespace, "here").pods] == expected


def test_a_pod_without_usage_is_an_error() -> None:
    with pytest.raises(OperatorError, match="no usage of a pod 'none' in namespace shop"):
        choose_pods(FoundUsage(node=NODE, pods=PODS), "shop/none", "", "here")


def test_a_first_reading_lacks_the_cpu_of_all_pods() -> None:
    assert lacks_cpu(FoundUsage(node=NODE, pods=(PODS[2], PODS[3])))
    assert not lacks_cpu(FoundUsage(node=NODE, pods=PODS))
    assert not lacks_cpu(FoundUsage(node=NODE)) and not lacks_cpu(FoundUsage(node=NODE, pods=PODS[3:]))


def counted(name: str, seconds: float, read_at: float, millicores: int | None = None) -> PodUsage:
    """A pod that has used so many seconds of CPU."""
    usage = replace(cgroup(millicores, 5), cpu_nanoseconds=int(seconds * 1e9))
    return replace(pod(name, usage), read_at=read_at)


def test_a_second_reading_gives_the_cpu_since_the_first_where_pleg_has_none() -> None:
    before = (counted("busy", 3.0, 1.0), counted("known", 0.0, 1.0), counted("again", 9.0, 1.0), pod("gone", None))
    after = (counted("busy", 4.0, 3.0), counted("known", 1.0, 3.0, 7), counted("again", 1.0, 3.0), counted("new", 1, 3))
    found = with_cpu(FoundUsage(node=NODE, pods=before), FoundUsage(node=NODE, pods=(*after, pod("gone", None))))
    lines = [line.split()[:2] for line in usage_lines(found, containers=True, width=0, cores=4)[2:]]
    assert lines == [
        *(["shop/busy", "500m"], ["main", "500m"]),
        *(["shop/known", "7m"], ["main", "7m"]),
        *(["shop/again", "-"], ["main", "-"]),  # its cgroup was made again
        *(["shop/new", "-"], ["main", "-"]),
        *(["shop/gone", "-"], ["main", "-"]),
    ]


def test_the_same_reading_twice_has_no_cpu() -> None:
    found = FoundUsage(node=NODE, pods=(counted("busy", 3.0, 1.0),))
    assert lacks_cpu(with_cpu(found, found))
