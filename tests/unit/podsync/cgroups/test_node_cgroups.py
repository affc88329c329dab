"""The cgroups above the pods: what kubepods gets, when it is tried again, and which cgroups of pods are taken away."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bus.messages.event import KubeEvent
from services.podsync.adapters.cgroups.pod_cgroups import PodCgroups
from services.podsync.controllers.node_cgroups import NodeCgroups
from services.podsync.controllers.runtime_answers import RuntimeAnswers
from services.podsync.core.cgroups.node_cgroup import NodeCapacity, kubepods_values
from services.podsync.core.cgroups.pod_cgroup import UNLIMITED_HUGEPAGES, CgroupValues
from services.podsync.core.node.node_facts import NodeFacts
from shared.config.effective import EffectiveConfig, EmbeddedContainerd
from shared.cri.interface import RuntimeCallError
from shared.metrics.registry import Registry
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from tests.fakes.memory_bus import MemoryNetwork
from tests.unit.podsync.cgroups.test_cgroups import v1

GIB = 1 << 30
RESERVED: tuple[dict[str, str], ...] = ({"cpu": "500m", "memory": "1Gi", "pid": "1000"}, {"cpu": "250m"})
MACHINE = NodeCapacity(cpus=4, memory=8 * GIB, pids=32768, hugepages={"2MB": 16 << 20}, cpu_list="0-3", reserved=())


@pytest.mark.parametrize(
    ("reserved", "enforced", "wanted"),
    [
        ((), ("pods",), (4096, 8 * GIB, 32768, 16 << 20)),
        (RESERVED, ("pods",), (3328, 7 * GIB, 31768, 16 << 20)),
        (RESERVED, (), (4096, 8 * GIB, 32768, 16 << 20)),
        (RESERVED, ("none",), (4096, 8 * GIB, 32768, 16 << 20)),
        (RESERVED, ("system-reserved",), (4096, 8 * GIB, 32768, 16 << 20)),
        (({"cpu": "4"},), ("pods",), (2, 8 * GIB, 32768, 16 << 20)),
        (({"pid": "99999"},), ("pods",), (4096, 8 * GIB, 0, 16 << 20)),
        (({"hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "2Mi"}), ("pods",), (4096, 8 * GIB, 32768, 10 << 20)),
        (({"ephemeral-storage": "1Gi"},), ("pods",), (4096, 8 * GIB, 32768, 16 << 20)),
    ],
)
def test_kubepods_gets_what_is_left_after_reservations(
    reserved: tuple[dict[str, str], ...], enforced: tuple[str, ...], wanted: tuple[int, int, int, int]
) -> None:
    capacity = replace(MACHINE, reserved=reserved)
    values = kubepods_values(capacity, enforced)
    assert (values.cpu_shares, values.memory_limit, values.pids_limit, values.hugepage_limits["2MB"]) == wanted
    assert (values.cpu_quota, values.cpu_period, values.cpuset_cpus) == (None, None, "")


def test_only_systemd_gets_the_cpus() -> None:
    assert kubepods_values(MACHINE, ("pods",), with_cpus=True).cpuset_cpus == "0-3"


GUEST = EmbeddedContainerd(root="r", state="s", socket="c.sock", config_file="f", cni_conf_dir="d")


class Driver:
    """Notes what it is asked; `refuses` names a cgroup and why it cannot be written."""

    name = "cgroupfs"

    def __init__(self) -> None:
        self.written: list[tuple[str, CgroupValues]] = []
        self.destroyed: list[str] = []
        self.refuses: dict[str, str] = {}

    async def ensure(self, name: str, values: CgroupValues) -> None:
        await self.write(name, values)

    async def write(self, name: str, values: CgroupValues) -> None:
        if name in self.refuses:
            raise OSError(self.refuses[name])
        self.written.append((name, values))

    async def destroy(self, name: str) -> None:
        if name in self.refuses:
            raise OSError(self.refuses[name])
        self.destroyed.append(name)


class Runtime:
    """Reports its driver, or an error."""

    def __init__(self, driver: str | None = None) -> None:
        self.driver, self.asked, self.away = driver, 0, False

    async def runtime_config(self) -> str | None:
        self.asked += 1
        if self.away:
            raise RuntimeCallError("RuntimeConfig", "Unavailable", "no socket")
        return self.driver


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


class Stage:
    """A node of files with a driver that only notes."""

    def __init__(self, root: Path, *, guest: bool = False, config: dict[str, Any] | None = None, **facts: Any) -> None:
        self.root, self.clock, self.runtime = root, Clock(), Runtime()
        (root / "cg").mkdir()
        self.facts = NodeFacts(node_name="n1", page_sizes=("2MB",), **facts)
        hierarchies = v1(root / "cg", "cpu", "memory")
        self.metrics = Registry()
        self.pods = PodCgroups(self.facts, hierarchies, self.runtime, self.clock, self.metrics)  # type: ignore[arg-type]
        self.driver = Driver()
        self.pods._driver = self.driver  # type: ignore[assignment]
        self.active: list[Object] = []
        self.known: set[str] | None = set()
        self.events: list[KubeEvent] = []
        self.troubles: dict[str, str | None] = {}
        self.network = MemoryNetwork()
        places: dict[str, Any] = {name: str(root / name) for name in ("run_dir", "log_dir", "cert_dir")}
        effective = EffectiveConfig(
            node_name="n1",
            root_dir=str(root / "kubelet"),
            cgroup_root=self.facts.cgroup_root,
            embedded_containerd=GUEST if guest else None,
            **places,
            **(config or {}),
        )
        self.node = NodeCgroups(
            self.pods,
            effective,
            lambda: self.active,
            lambda: self.known,
            self.events.append,
            lambda name, line: self.troubles.update({name: line}),
            RuntimeAnswers(self.network.bus("podsync")),
        )

    def make(self, *names: str) -> None:
        for name in names:
            for controller in ("cpu", "memory"):
                (self.root / "cg" / controller / name.strip("/")).mkdir(parents=True, exist_ok=True)

    async def look(self) -> None:
        await self.node.look_for_orphans()
        while self.node._under_way:
            await asyncio.sleep(0)

    def names(self) -> list[str]:
        return [name for name, _ in self.driver.written]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def a_pod(cpu: str, uid: str = "u") -> Object:
    resources = {"requests": {"cpu": cpu}}
    return {"metadata": {"uid": uid}, "spec": {"containers": [{"name": "c", "resources": resources}]}}


async def test_node_allocatable_is_enforced_once_with_an_event(stage: Stage) -> None:
    await stage.node.write_all()
    await stage.node.write_all()
    assert [(e.type, e.reason, e.message, e.kind, e.name) for e in stage.events] == [
        ("Normal", "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods", "Node", "n1")
    ]
    limited = [values for name, values in stage.driver.written if name == "/kubepods" and values.memory_limit]
    assert len(limited) == 1


async def test_a_refusal_causes_an_event_and_is_tried_again_until_it_works(stage: Stage) -> None:
    stage.driver.refuses["/kubepods"] = "unable to set memory limit to 1 (current usage: 2, peak usage: 3)"
    await stage.node.write_all()
    [event] = stage.events
    assert (event.type, event.reason) == ("Warning", "FailedNodeAllocatableEnforcement")
    assert event.message == (
        'Failed to update Node Allocatable Limits "/kubepods": '
        "unable to set memory limit to 1 (current usage: 2, peak usage: 3)"
    )
    assert "unable to set memory limit" in str(stage.troubles["cgroups"])
    stage.driver.refuses.clear()
    await stage.node.write_all()
    assert [e.reason for e in stage.events][1:] == ["NodeAllocatableEnforced"]
    assert stage.troubles["cgroups"] is None


async def test_the_qos_loop_lifts_the_limit_of_huge_pages_everywhere(stage: Stage) -> None:
    stage.active = [a_pod("100m"), a_pod("1500m", uid="u2")]
    await stage.node.write_all()
    last = dict(stage.driver.written)
    assert set(last) == {"/kubepods", "/kubepods/burstable", "/kubepods/besteffort"}
    assert all(values.hugepage_limits == {"2MB": UNLIMITED_HUGEPAGES} for values in last.values())
    assert last["/kubepods/burstable"].cpu_shares == 1638
    assert last["/kubepods/besteffort"].cpu_shares == 2
    assert last["/kubepods"].cpu_shares is None


async def test_the_shares_of_burstable_come_down_when_a_pod_went(stage: Stage) -> None:
    stage.active = [a_pod("1")]
    await stage.pods.write_classes(lambda: stage.active)
    stage.active = []
    await stage.node.write_all()
    assert dict(stage.driver.written)["/kubepods/burstable"].cpu_shares == 2


async def test_one_class_that_cannot_be_written_does_not_keep_the_other(stage: Stage) -> None:
    stage.driver.refuses["/kubepods/besteffort"] = "no"
    await stage.node.write_all()
    assert "/kubepods/burstable" in stage.names()


async def test_a_class_that_has_its_values_is_left_alone_for_a_minute(stage: Stage) -> None:
    stage.make("/kubepods/burstable", "/kubepods/besteffort")
    for _ in range(2):
        await stage.pods.write_classes(lambda: ())
    assert stage.names() == ["/kubepods/besteffort", "/kubepods/burstable"]
    stage.clock.now += 61
    await stage.pods.write_classes(lambda: ())
    assert len(stage.names()) == 4


async def test_a_pod_gets_its_cgroup_even_where_its_class_refuses(stage: Stage) -> None:
    stage.driver.refuses["/kubepods/burstable"] = "no"
    await stage.pods.prepare(a_pod("1"), lambda: ())
    assert stage.names()[-1] == "/kubepods/burstable/podu"


async def test_no_cgroup_is_made_around_a_pod_that_runs(stage: Stage) -> None:
    assert not await stage.pods.prepare(a_pod("1"), lambda: (), runs=True)
    assert stage.driver.written == [] and stage.pods.is_missing(a_pod("1"))
    stage.make("/kubepods/burstable/podu")
    assert await stage.pods.prepare(a_pod("1"), lambda: (), runs=True)
    assert stage.names()[-1] == "/kubepods/burstable/podu" and not stage.pods.is_missing(a_pod("1"))


async def test_a_cgroup_is_not_missed_before_its_driver_is_known(stage: Stage) -> None:
    stage.pods._driver = None
    assert not stage.pods.is_missing(a_pod("1"))


async def test_a_pod_known_from_the_runtime_alone_is_looked_for_in_every_class(stage: Stage) -> None:
    await stage.pods.release("u", None)
    assert set(stage.driver.destroyed) == {"/kubepods/podu", "/kubepods/burstable/podu", "/kubepods/besteffort/podu"}
    stage.driver.destroyed.clear()
    await stage.pods.release("u", a_pod("1"))
    assert stage.driver.destroyed == ["/kubepods/burstable/podu"]


# Orphans


async def test_a_cgroup_of_an_unknown_pod_is_removed(stage: Stage) -> None:
    stage.make("/kubepods/podone", "/kubepods/burstable/podtwo", "/kubepods/besteffort/podthree")
    stage.known = {"two"}
    await stage.look()
    assert set(stage.driver.destroyed) == {"/kubepods/podone", "/kubepods/besteffort/podthree"}


async def test_nothing_is_removed_before_all_pods_are_known(stage: Stage) -> None:
    stage.make("/kubepods/podone")
    stage.known = None
    await stage.look()
    assert stage.driver.destroyed == []


async def test_one_with_volumes_is_slowed_down_once_and_removed_when_they_are_gone(
    stage: Stage, tmp_path: Path
) -> None:
    stage.make("/kubepods/podone")
    volume = tmp_path / "kubelet/pods/one/volumes/kubernetes.io~secret/token"
    volume.mkdir(parents=True)
    for _ in range(2):
        await stage.look()
    assert stage.driver.written == [("/kubepods/podone", CgroupValues(cpu_shares=2))]
    assert stage.driver.destroyed == []
    volume.rmdir()
    await stage.look()
    assert stage.driver.destroyed == ["/kubepods/podone"]


@pytest.mark.parametrize(("guest", "root", "removes"), [(True, "", False), (True, "/own", True), (False, "/", True)])
def test_a_guest_beside_another_kubelet_takes_no_cgroup_away(
    tmp_path: Path, guest: bool, root: str, removes: bool
) -> None:
    """It shares kubepods with a kubelet whose pods it cannot know; its own cgroupRoot keeps them apart."""
    assert Stage(tmp_path, guest=guest, cgroup_root=root).node.removes_orphans is removes


async def test_one_that_stays_is_tried_again(stage: Stage) -> None:
    stage.make("/kubepods/podone")
    stage.driver.refuses["/kubepods/podone"] = "cannot remove"
    await stage.look()
    stage.driver.refuses.clear()
    await stage.look()
    assert stage.driver.destroyed == ["/kubepods/podone"]


# Which driver


@pytest.mark.parametrize(
    ("configured", "reported", "wanted"),
    [
        ("cgroupfs", None, "cgroupfs"),
        ("systemd", "cgroupfs", "cgroupfs"),
        ("systemd", "something", "systemd"),
        ("cgroupfs", "systemd", "systemd"),
        ("systemd", None, "systemd"),
    ],
)
async def test_the_runtimes_word_wins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, configured: str, reported: str | None, wanted: str
) -> None:
    stage = Stage(tmp_path, cgroup_driver=configured)
    stage.pods._driver, stage.runtime.driver = None, reported
    assert (await stage.pods.driver()).name == wanted
    assert stage.pods.facts.cgroup_driver == wanted
    await stage.pods.driver()
    assert stage.runtime.asked == 1
    warned = [r.getMessage() for r in caplog.records if "cgroup driver is" in r.getMessage()]
    assert len(warned) == (configured != wanted)
    losing = next(series for family, series in stage.metrics.collect() if family.name == "kubelet_cri_losing_support")
    assert list(losing) == ([("1.38.0",)] if reported is None else [])


async def test_a_runtime_that_is_away_is_asked_again(stage: Stage) -> None:
    stage.pods._driver, stage.runtime.away = None, True
    for _ in range(2):
        with pytest.raises(RuntimeCallError):
            await stage.pods.prepare(a_pod("1"), lambda: ())
    stage.runtime.away = False
    assert (await stage.pods.driver()).name == "cgroupfs"
    assert stage.runtime.asked == 3


async def test_without_qos_cgroups_the_runtime_is_not_asked_and_nothing_is_made(tmp_path: Path) -> None:
    stage = Stage(tmp_path, cgroups_per_qos=False)
    assert await stage.pods.prepare(a_pod("1"), lambda: (), runs=True)
    assert not stage.pods.is_missing(a_pod("1"))
    await stage.pods.release("u", a_pod("1"))
    await stage.node.run()
    assert (stage.driver.written, stage.driver.destroyed, stage.runtime.asked) == ([], [], 0)


async def test_the_cgroup_of_a_pod_that_comes_while_its_volumes_are_looked_for_stays(stage: Stage) -> None:
    stage.make("/kubepods/podu1")
    await stage.node.look_for_orphans()
    stage.known = {"u1"}
    while stage.node._under_way:
        await asyncio.sleep(0)
    assert stage.driver.destroyed == []


async def test_operations_on_cgroups_are_counted_also_those_that_fail(stage: Stage) -> None:
    await stage.pods.prepare(a_pod("1"), lambda: ())
    await stage.pods.release("u", a_pod("1"))
    stage.driver.refuses[stage.driver.destroyed[-1]] = "busy"
    with pytest.raises(OSError, match="busy"):
        await stage.pods.release("u", a_pod("1"))
    series = next(
        s for family, s in stage.metrics.collect() if family.name == "kubelet_cgroup_manager_duration_seconds"
    )
    counts = {operation: sum(values[:-1]) for (operation,), values in series.items()}
    assert counts == {"create": 1, "update": 2, "destroy": 2}  # two QoS classes are written before the first pod


def test_the_version_of_the_hierarchy_is_shown(stage: Stage) -> None:
    assert [s for family, s in stage.metrics.collect() if family.name == "kubelet_cgroup_version"] == [{(): [1.0]}]
