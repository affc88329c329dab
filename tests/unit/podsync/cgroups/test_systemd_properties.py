"""What systemd gets: names of slices and back, and the properties of each value; worked by hand."""

import pytest

from services.podsync.core.cgroups.pod_cgroup import CgroupValues, pod_uid_of, qos_cgroup_names
from services.podsync.core.cgroups.systemd_properties import (
    INFINITY,
    cpu_mask,
    limit_properties,
    parent_unit_of,
    slice_properties,
    unit_of,
    version_number,
)
from services.podsync.core.node.node_facts import NodeFacts
from shared.host.cgroup_name import cgroup_name

POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a_2b.slice"
UID = "9ea24d2a-9ed0-4ef8-8b10-26bb85a3e6d3"


@pytest.mark.parametrize(
    ("components", "path"),
    [
        (("kubepods",), "/kubepods.slice"),
        (("kubepods", "burstable", "pod1a-2b"), POD),
        (("a", "b-c", "kubepods"), "/a.slice/a-b_c.slice/a-b_c-kubepods.slice"),
    ],
)
def test_a_slices_name_begins_with_those_above_it(components: tuple[str, ...], path: str) -> None:
    assert cgroup_name(components, "systemd") == path


def test_the_unit_is_the_last_part_and_its_parent_the_one_before() -> None:
    assert unit_of(POD) == "kubepods-burstable-pod1a_2b.slice"
    assert parent_unit_of(POD) == "kubepods-burstable.slice"
    assert parent_unit_of("/kubepods.slice") == ""


@pytest.mark.parametrize(
    ("directory", "driver", "uid"),
    [
        (f"pod{UID}", "cgroupfs", UID),
        ("pod3b8f0e0e2f0c4d3a", "cgroupfs", "3b8f0e0e2f0c4d3a"),  # a static pod's is a hash
        ("burstable", "cgroupfs", None),
        ("pod", "cgroupfs", None),
        ("kubepods-burstable-pod1a_2b.slice", "systemd", "1a-2b"),
        (f"kubepods-pod{UID.replace('-', '_')}.slice", "systemd", UID),
        (f"a-b_c-kubepods-besteffort-pod{UID.replace('-', '_')}.slice", "systemd", UID),
        ("kubepods-burstable.slice", "systemd", None),
        (f"pod{UID}", "systemd", None),
        ("cri-containerd-0f.scope", "systemd", None),
    ],
)
def test_the_name_of_a_directory_contains_its_pod(directory: str, driver: str, uid: str | None) -> None:
    assert pod_uid_of(directory, driver) == uid


def test_pods_are_right_below_kubepods_and_its_two_classes() -> None:
    facts = NodeFacts(node_name="n", cgroup_driver="systemd", cgroup_root="/r")
    below = "/r.slice/r-kubepods.slice"
    assert set(qos_cgroup_names(facts)) == {
        below,
        f"{below}/r-kubepods-burstable.slice",
        f"{below}/r-kubepods-besteffort.slice",
    }


def test_a_slice_counts_what_is_used_in_it() -> None:
    properties = {name: (kind, value) for name, kind, value in slice_properties(POD, v2=False)}
    assert properties["Wants"] == ("as", ["kubepods-burstable.slice"])
    assert properties["DefaultDependencies"] == ("b", False)
    accounting = {name for name in properties if name.endswith("Accounting")}
    assert accounting == {"MemoryAccounting", "CPUAccounting", "BlockIOAccounting", "TasksAccounting"}
    assert all(properties[name] == ("b", True) for name in accounting)
    assert "IOAccounting" in {name for name, _, _ in slice_properties(POD, v2=True)}
    assert "Wants" not in {name for name, _, _ in slice_properties("/kubepods.slice", v2=True)}


CASES = [
    (CgroupValues(), {}, {}),
    (CgroupValues(cpu_shares=1024), {"CPUShares": 1024}, {"CPUWeight": 39}),
    (CgroupValues(memory_limit=4096), {"MemoryLimit": 4096}, {"MemoryMax": 4096}),
    (CgroupValues(memory_limit=-1), {"MemoryLimit": INFINITY}, {"MemoryMax": INFINITY}),
    (CgroupValues(pids_limit=0), {"TasksMax": 1}, {"TasksMax": 1}),
    (CgroupValues(pids_limit=-1), {"TasksMax": INFINITY}, {"TasksMax": INFINITY}),
    (CgroupValues(pids_limit=9), {"TasksMax": 9}, {"TasksMax": 9}),
    (CgroupValues(cpuset_cpus="0-1"), {"AllowedCPUs": b"\x03"}, {"AllowedCPUs": b"\x03"}),
    (CgroupValues(hugepage_limits={"2MB": 1}), {}, {}),
]


@pytest.mark.parametrize(("values", "on_v1", "on_v2"), CASES)
def test_a_value_becomes_a_property(values: CgroupValues, on_v1: dict[str, int], on_v2: dict[str, int]) -> None:
    for v2, wanted in ((False, on_v1), (True, on_v2)):
        assert {name: value for name, _, value in limit_properties(values, v2=v2, version=252)} == wanted


@pytest.mark.parametrize(
    ("quota", "period", "per_second"),
    [
        (10_000, 100_000, 100_000),
        (1_500, 100_000, 20_000),  # 0.015 CPU becomes 0.02
        (100_000, 100_000, 1_000_000),
        (1_000, 100_000, 10_000),
        (12_345, 50_000, 250_000),
        (-1, 100_000, INFINITY),
        (0, 100_000, INFINITY),
    ],
)
def test_a_quota_is_rounded_up_to_ten_milliseconds_a_second(quota: int, period: int, per_second: int) -> None:
    values = CgroupValues(cpu_quota=quota, cpu_period=period)
    properties = {name: value for name, _, value in limit_properties(values, v2=True, version=252)}
    assert properties == {"CPUQuotaPeriodUSec": period, "CPUQuotaPerSecUSec": per_second}


def test_an_older_systemd_gets_no_unknown_properties() -> None:
    values = CgroupValues(cpu_quota=1_000, cpu_period=100_000, cpuset_cpus="0")

    def names(version: int) -> set[str]:
        return {name for name, _, _ in limit_properties(values, v2=True, version=version)}

    assert names(241) == {"CPUQuotaPerSecUSec"}
    assert names(243) == {"CPUQuotaPerSecUSec", "CPUQuotaPeriodUSec"}
    assert names(244) == names(0) == {"CPUQuotaPerSecUSec", "CPUQuotaPeriodUSec", "AllowedCPUs"}


@pytest.mark.parametrize(
    ("text", "number"), [("252.38-1~deb12u1", 252), ("v245", 245), ("systemd 219", 219), ("", 0), ("next", 0)]
)
def test_the_version_is_the_first_number(text: str, number: int) -> None:
    assert version_number(text) == number


@pytest.mark.parametrize(
    ("cpus", "mask"), [("0", b"\x01"), ("0-3", b"\x0f"), ("0-1,8", b"\x03\x01"), ("7-8", b"\x80\x01"), ("3", b"\x08")]
)
def test_cpus_are_bits_the_first_in_the_lowest(cpus: str, mask: bytes) -> None:
    assert cpu_mask(cpus) == mask
