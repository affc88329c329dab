"""The cgroups of daemons: which reservations they are given, and when it is tried again."""

from pathlib import Path
from typing import Any

import pytest

from services.podsync.core.cgroups.pod_cgroup import CgroupValues
from shared.host.cgroup_name import CGROUPFS, SYSTEMD, cgroup_components, cgroup_name
from tests.unit.podsync.cgroups.test_node_cgroups import GIB, Stage

DAEMONS: dict[str, Any] = {
    "enforce_node_allocatable": ("pods", "system-reserved", "kube-reserved-compressible"),
    "system_reserved": {"cpu": "500m", "memory": "1Gi", "pid": "1000", "hugepages-2Mi": "4Mi"},
    "system_reserved_cgroup": "/system.slice",
    "kube_reserved": {"cpu": "250m", "memory": "1Gi"},
    "kube_reserved_cgroup": "/podruntime/kube",
}


async def test_reservations_are_enforced_on_the_cgroups_of_daemons_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, config=DAEMONS)
    stage.make("/system.slice", "/podruntime/kube")
    await stage.node.write_all()
    await stage.node.write_all()
    written = [(name, values) for name, values in stage.driver.written if not name.startswith("/kubepods")]
    system = CgroupValues(cpu_shares=512, memory_limit=GIB, pids_limit=1000, hugepage_limits={"2MB": 4 << 20})
    assert written == [("/system.slice", system), ("/podruntime/kube", CgroupValues(cpu_shares=256))]
    assert [event.message for event in stage.events][1:] == [
        "Updated limits on system reserved cgroup /system.slice",
        "Updated limits on kube reserved cgroup /podruntime/kube",
    ]


async def test_a_cgroup_of_daemons_that_does_not_exist_is_not_made_and_is_tried_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path, config={**DAEMONS, "enforce_node_allocatable": ("pods", "system-reserved")})
    await stage.node.write_all()
    assert "/system.slice" not in stage.names()
    event = stage.events[-1]
    assert (event.type, event.reason) == ("Warning", "FailedNodeAllocatableEnforcement")
    assert "the cgroup /system.slice does not exist in every controller" in event.message
    stage.make("/system.slice")
    await stage.node.write_all()
    assert stage.names().count("/system.slice") == 1
    assert stage.events[-1].reason == "NodeAllocatableEnforced"


async def test_without_enforcement_the_cgroups_of_daemons_are_left_alone(tmp_path: Path) -> None:
    stage = Stage(tmp_path, config={**DAEMONS, "enforce_node_allocatable": ("pods",)})
    stage.make("/system.slice", "/podruntime/kube")
    await stage.node.write_all()
    assert {name for name in stage.names() if not name.startswith("/kubepods")} == set()


@pytest.mark.parametrize(
    ("driver", "path", "name"),
    [
        (SYSTEMD, "/system.slice", "/system.slice"),
        (SYSTEMD, "system", "/system.slice"),
        (SYSTEMD, "/runtime.slice/runtime-kube.slice", "/runtime.slice/runtime-kube.slice"),
        (SYSTEMD, "/pod_runtime.slice", "/pod_runtime.slice"),
        (CGROUPFS, "/system.slice", "/system.slice"),
        (CGROUPFS, "/podruntime/kube-d", "/podruntime/kube-d"),
    ],
)
def test_the_cgroup_of_daemons_is_named_as_the_host_has_it(driver: str, path: str, name: str) -> None:
    assert cgroup_name(cgroup_components(path, driver), driver) == name
