"""Every file of a cgroup v2 tree that both drivers write for a node and its pods; by hand from node.md 4.2-4.6.

The controllers are those of Debian 12. A tree of files has no kernel behind it: what is written stays as it is.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from services.podsync.adapters.cgroups.cgroup_drivers import CgroupfsDriver, SystemdDriver
from services.podsync.adapters.cgroups.pod_cgroups import PodCgroups
from services.podsync.core.cgroups.node_cgroup import NodeCapacity, kubepods_values
from services.podsync.core.cgroups.systemd_properties import Property
from services.podsync.core.node.node_facts import NodeFacts
from shared.host.cgroup_layout import Hierarchies
from shared.metrics.registry import Registry
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from tests.unit.podsync.cgroups.test_node_cgroups import Clock, Runtime

MIB, GIB = 1 << 20, 1 << 30
CONTROLLERS = "cpuset cpu io memory hugetlb pids rdma misc"
PASSED_ON = " ".join(f"+{name}" for name in sorted(CONTROLLERS.split()))
UNLIMITED = str(1 << 62)

FACTS = NodeFacts(
    node_name="n", page_sizes=("2MB",), pod_pids_limit=100, enforced_memory=8 * GIB, memory_qos=True,
    protects_memory=True, qos_reserved_memory=50,
)  # fmt: skip
NODE = NodeCapacity(cpus=4, memory=9 * GIB, pids=32768, hugepages={"2MB": 16 * MIB}, cpu_list="0-3",
                    reserved=({"cpu": "500m", "memory": "1Gi", "pid": "768"},))  # fmt: skip


def pod(uid: str, requests: dict[str, str], limits: dict[str, str]) -> Object:
    resources = {"requests": requests, "limits": limits}
    return {"metadata": {"uid": uid}, "spec": {"containers": [{"name": "c", "resources": resources}]}}


PODS = [
    pod("g-1", {"cpu": "500m", "memory": "1Gi"}, {"cpu": "500m", "memory": "1Gi"}),
    pod("b-1", {"cpu": "250m", "memory": "2Gi", "hugepages-2Mi": "4Mi"}, {"memory": "3Gi", "hugepages-2Mi": "4Mi"}),
    pod("e-1", {}, {}),
]

WRITTEN: dict[str, dict[str, str]] = {
    "kubepods": {
        "cpu.weight": "137",  # 3500m: 3584 shares
        "memory.max": str(8 * GIB),
        "memory.min": str(3 * GIB),
        "pids.max": "32000",
        "hugetlb.2MB.max": UNLIMITED,  # the loop of the QoS classes lifts the limit of the node
    },
    "kubepods/burstable": {
        "cpu.weight": "10",  # 250m: 256 shares
        "memory.max": str(8 * GIB - GIB // 2),
        "memory.low": str(2 * GIB),
        "hugetlb.2MB.max": UNLIMITED,
    },
    "kubepods/besteffort": {
        "cpu.weight": "1",
        "memory.max": str(8 * GIB - GIB // 2 - GIB),
        "hugetlb.2MB.max": UNLIMITED,
    },
    "kubepods/podg-1": {
        "cpu.weight": "20",
        "cpu.max": "50000 100000",
        "memory.max": str(GIB),
        "memory.min": str(GIB),
        "pids.max": "100",
        "hugetlb.2MB.max": "0",
    },
    "kubepods/burstable/podb-1": {
        "cpu.weight": "10",
        "memory.max": str(3 * GIB),
        "memory.low": str(2 * GIB),
        "pids.max": "100",
        "hugetlb.2MB.max": str(4 * MIB),
    },
    "kubepods/besteffort/pode-1": {"cpu.weight": "1", "pids.max": "100", "hugetlb.2MB.max": "0"},
}
SLICES = {
    "kubepods": "kubepods.slice",
    "kubepods/burstable": "kubepods.slice/kubepods-burstable.slice",
    "kubepods/besteffort": "kubepods.slice/kubepods-besteffort.slice",
    "kubepods/podg-1": "kubepods.slice/kubepods-podg_1.slice",
    "kubepods/burstable/podb-1": "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb_1.slice",
    "kubepods/besteffort/pode-1": "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pode_1.slice",
}


class Units:
    """systemd that notes what a slice is given: the newest value of each property."""

    version = 252

    def __init__(self) -> None:
        self.properties: dict[str, dict[str, Any]] = {}

    async def connect(self) -> None: ...

    async def start(self, unit: str, properties: Sequence[Property]) -> bool:
        new = unit not in self.properties
        await self.set_properties(unit, properties)
        return new

    async def set_properties(self, unit: str, properties: Sequence[Property]) -> None:
        self.properties.setdefault(unit, {}).update({name: value for name, _, value in properties})


async def write_everything(
    root: Path, driver: CgroupfsDriver, trees: Hierarchies, facts: NodeFacts
) -> dict[str, dict[str, str]]:
    """Start a node with three pods; return the files below `root` by cgroup, `.` = the root."""
    cgroups = PodCgroups(facts, trees, Runtime(), Clock(), Registry())  # type: ignore[arg-type]
    cgroups._driver = driver
    await cgroups.write_node(kubepods_values(NODE, ("pods",), with_cpus=driver.name == "systemd"))
    for one in PODS:
        await cgroups.prepare(one, lambda: PODS)
    await cgroups.write_classes(lambda: PODS, complete=True)
    written: dict[str, dict[str, str]] = {}
    for file in sorted(root.rglob("*")):
        if file.is_file():
            written.setdefault(str(file.parent.relative_to(root)), {})[file.name] = file.read_text()
    return written


def tree(root: Path) -> Hierarchies:
    (root / "cgroup.controllers").write_text(CONTROLLERS)
    return Hierarchies(unified=root, by_controller={})


def with_control(written: dict[str, dict[str, str]], above: set[str]) -> dict[str, dict[str, str]]:
    """Each cgroup above another one passes every controller on."""
    expected = {name: dict(files) for name, files in written.items()}
    for name in above:
        expected[name]["cgroup.subtree_control"] = PASSED_ON
    root = {"cgroup.controllers": CONTROLLERS, "cgroup.subtree_control": PASSED_ON}
    return {".": root, **expected}


ABOVE = {"kubepods", "kubepods/burstable", "kubepods/besteffort"}


async def test_the_driver_cgroupfs_writes_these_files(tmp_path: Path) -> None:
    trees = tree(tmp_path)
    written = await write_everything(tmp_path, CgroupfsDriver(trees, FACTS.page_sizes), trees, FACTS)
    assert written == with_control(WRITTEN, ABOVE)


async def test_the_driver_systemd_writes_the_same_files_and_gives_systemd_the_same_values(tmp_path: Path) -> None:
    trees, units = tree(tmp_path), Units()
    facts = replace(FACTS, cgroup_driver="systemd")
    driver = SystemdDriver(trees, facts.page_sizes, units)  # type: ignore[arg-type]
    written = await write_everything(tmp_path, driver, trees, facts)
    expected = {SLICES[name]: files for name, files in WRITTEN.items()}
    expected["kubepods.slice"] = {**expected["kubepods.slice"], "cpuset.cpus": "0-3"}
    assert written == with_control(expected, {SLICES[name] for name in ABOVE})
    limits = {
        unit: {name: value for name, value in given.items() if name.startswith(("CPU", "Memory", "Tasks", "Allowed"))
               and not name.endswith("Accounting")}
        for unit, given in units.properties.items()
    }  # fmt: skip
    assert limits == {
        "kubepods.slice": {"MemoryMax": 8 * GIB, "MemoryMin": 3 * GIB, "CPUWeight": 137, "TasksMax": 32000,
                           "AllowedCPUs": b"\x0f"},
        "kubepods-burstable.slice": {"MemoryMax": 8 * GIB - GIB // 2, "MemoryLow": 2 * GIB, "CPUWeight": 10},
        "kubepods-besteffort.slice": {"MemoryMax": 8 * GIB - GIB // 2 - GIB, "CPUWeight": 1},
        "kubepods-podg_1.slice": {"MemoryMax": GIB, "MemoryMin": GIB, "CPUWeight": 20, "TasksMax": 100,
                                  "CPUQuotaPeriodUSec": 100_000, "CPUQuotaPerSecUSec": 500_000},
        "kubepods-burstable-podb_1.slice": {"MemoryMax": 3 * GIB, "MemoryLow": 2 * GIB, "CPUWeight": 10,
                                            "TasksMax": 100},
        "kubepods-besteffort-pode_1.slice": {"CPUWeight": 1, "TasksMax": 100},
    }  # fmt: skip


async def test_with_the_gate_off_nothing_is_protected_any_more(tmp_path: Path) -> None:
    """The kernel protects no more of a pod than of the class above it, whatever the pod's own files say."""
    trees = tree(tmp_path)
    await write_everything(tmp_path, CgroupfsDriver(trees, FACTS.page_sizes), trees, FACTS)
    off = replace(FACTS, memory_qos=False, protects_memory=False, resets_memory_qos=True)
    written = await write_everything(tmp_path, CgroupfsDriver(trees, off.page_sizes), trees, off)
    assert (written["kubepods"]["memory.min"], written["kubepods/burstable"]["memory.low"]) == ("0", "0")


@pytest.mark.parametrize("usage", [7 * GIB, 5 * GIB])
async def test_on_v2_a_class_is_never_limited_below_what_it_uses(tmp_path: Path, usage: int) -> None:
    trees = tree(tmp_path)
    (tmp_path / "kubepods/besteffort").mkdir(parents=True)
    (tmp_path / "kubepods/besteffort/memory.current").write_text(str(usage))
    written = await write_everything(tmp_path, CgroupfsDriver(trees, FACTS.page_sizes), trees, FACTS)
    assert written["kubepods/besteffort"]["memory.max"] == str(max(usage, 8 * GIB - GIB // 2 - GIB))


async def test_without_the_controllers_that_a_kernel_may_lack_the_rest_is_written(tmp_path: Path) -> None:
    trees = tree(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu memory")
    written = await write_everything(tmp_path, CgroupfsDriver(trees, FACTS.page_sizes), trees, FACTS)
    del written["."]
    without = {
        name: {file: text for file, text in files.items() if not file.startswith(("pids", "hugetlb"))}
        for name, files in WRITTEN.items()
    }
    assert {
        name: {file: text for file, text in files.items() if file != "cgroup.subtree_control"}
        for name, files in written.items()
    } == without
