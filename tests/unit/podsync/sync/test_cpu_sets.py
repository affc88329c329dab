"""Containers with CPUs of their own, and those beside them: no CPU is given twice, whenever podsync is killed."""

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from services.podsync.core.admission.node_view import MachineFacts, node_view
from services.podsync.core.admission.resize_verdict import decide_resize
from services.podsync.core.admission.taken import taken_by
from services.podsync.core.placement.cpu_policy import CpuOption, CpuSettings
from services.podsync.core.placement.memory_accounting import MemorySettings
from services.podsync.core.placement.merging import TopologyPolicy
from services.podsync.core.placement.placing import NodePlacer, PlacementSettings, TopologyScope, TopologySettings
from services.podsync.core.placement.pod_placement import ContainerPlacement, PodPlacement
from services.podsync.core.pod.events import CallDone, PodDesired, PodEvicted
from services.podsync.core.pod.instructions import SetContainerCpus
from shared.model.cpu_list import parse_cpus
from shared.model.frozen_copy import replace
from shared.model.machine_topology import Cpu, MachineTopology, NumaNode
from shared.model.runtime import ContainerState
from tests.unit.podsync.play import Play, Pod, a_container, a_pod

CPUS = frozenset(range(4))
MACHINE = MachineTopology(
    cpus={cpu: Cpu(id=cpu, core=cpu, socket=0, numa_node=0, uncore_cache=0) for cpu in CPUS}, nodes={0: NumaNode(id=0)}
)
STATIC = PlacementSettings(cpu=CpuSettings(static=True, reserved_cpus=frozenset({0}), reserved_count=1))
STATIC_MEMORY = PlacementSettings(memory=MemorySettings(static=True))


def a_play(**fields: Any) -> Play:
    facts = MachineFacts(
        node_name="n1", allocatable={"cpu": "8", "memory": "8Gi", "pods": "10"}, placer=NodePlacer(MACHINE, STATIC)
    )
    return Play(facts=facts, **fields)


def guaranteed(uid: str, cpus: int, name: str = "") -> Pod:
    amounts = {"cpu": str(cpus), "memory": "64Mi"}
    container = a_container("c", resources={"limits": amounts, "requests": amounts})
    return a_pod(uid, name or uid, containers=[container])


def burstable(uid: str) -> Pod:
    return a_pod(uid, uid, containers=[a_container("c", resources={"requests": {"cpu": "100m"}})])


def cpus_of(play: Play, uid: str) -> str:
    """Return the cpuset of the pod's running container in the runtime."""
    running = [c.id for c in play.containers.get(uid, []) if c.state is ContainerState.RUNNING]
    return play.resources[running[0]].get("cpuset_cpus", "") if running else "none runs"


def check_no_cpu_twice(play: Play) -> None:
    """Assert that no running container has CPUs that another pod has for itself."""
    own = {uid: data["placement"] for uid, data in play.disk.items() if data.get("placement")}
    given = {uid: parse_cpus(next(iter(placed.values()))["cpus"]) or frozenset() for uid, placed in own.items()}
    for uid in play.containers:
        if (text := cpus_of(play, uid)) == "none runs":
            continue
        for other, theirs in given.items():
            runs = cpus_of(play, other) != "none runs"
            assert uid == other or not runs or not (parse_cpus(text) or CPUS) & theirs, (uid, text, other, theirs)


def test_a_guaranteed_container_has_whole_cpus_and_the_others_leave_them_before_it_starts() -> None:
    play = a_play().wanting(burstable("u1"))
    assert cpus_of(play, "u1") == "0-3"
    play.want(guaranteed("u2", 2))
    assert (cpus_of(play, "u1"), cpus_of(play, "u2")) == ("0,3", "1-2")
    calls = [
        type(call).__name__ for call in play.calls if type(call).__name__ in ("SetContainerCpus", "StartContainer")
    ]
    assert calls == ["StartContainer", "SetContainerCpus", "StartContainer"]
    assert play.resources[play.containers["u2"][0].id]["cpu_quota"] == -1
    play.want(burstable("u3"))
    assert cpus_of(play, "u3") == "0,3"


def test_the_cpus_of_a_pod_that_has_ended_are_shared_again() -> None:
    play = a_play().wanting(burstable("u1"), guaranteed("u2", 2))
    play.drop("u2")
    assert cpus_of(play, "u1") == "0-3"
    play.want(guaranteed("u3", 3))
    assert (cpus_of(play, "u1"), cpus_of(play, "u3")) == ("0", "1-3")


def test_a_container_waits_until_the_others_have_left_cpus_that_a_call_under_way_still_gives_them() -> None:
    play = a_play().wanting(burstable("u1"), guaranteed("u2", 2))
    play.hang = {"SetContainerCpus"}
    play.drop("u2")  # u1 is to share its CPUs, and the runtime takes its time
    late = [call for call in play.calls if isinstance(call, SetContainerCpus)][-1]
    assert (late.uid, late.cpus) == ("u1", "0-3")
    play.want(guaranteed("u3", 2))
    assert cpus_of(play, "u3") == "none runs"
    play.resources[late.container_id]["cpuset_cpus"] = late.cpus
    play.happen(CallDone(uid="u1", call=late, completed_at=play.wall))
    assert (cpus_of(play, "u1"), cpus_of(play, "u3")) == ("0,3", "1-2")


def test_a_pod_without_room_is_rejected_and_takes_nothing() -> None:
    play = a_play().wanting(guaranteed("u1", 2), guaranteed("u2", 2))
    assert play.core.tracked["u2"].saved.rejected == "UnexpectedAdmissionError"
    play.want(guaranteed("u3", 1))
    assert (cpus_of(play, "u1"), cpus_of(play, "u3")) == ("1-2", "3")


def test_with_strict_reservation_the_last_shared_cpus_go_and_the_others_run_on_the_reserved_ones() -> None:
    cpu = replace(STATIC.cpu, options=frozenset({CpuOption.STRICT_CPU_RESERVATION}))
    play = Play(facts=replace(a_play().facts, placer=NodePlacer(MACHINE, replace(STATIC, cpu=cpu))))
    play.want(burstable("u1"))
    assert cpus_of(play, "u1") == "1-3"
    play.want(guaranteed("u2", 3))
    play.want(burstable("u3"))
    assert (cpus_of(play, "u1"), cpus_of(play, "u2"), cpus_of(play, "u3")) == ("0", "1-3", "0")


def test_the_event_of_a_refused_alignment_says_where_the_pod_would_fit_and_the_status_is_the_kubelets() -> None:
    topology = MachineTopology(
        cpus={cpu: Cpu(id=cpu, core=cpu, socket=cpu // 2, numa_node=cpu // 2, uncore_cache=0) for cpu in CPUS},
        nodes={0: NumaNode(id=0), 1: NumaNode(id=1)},
    )
    restricted = replace(STATIC, topology=TopologySettings(policy=TopologyPolicy.RESTRICTED))
    play = Play(facts=replace(a_play().facts, placer=NodePlacer(topology, restricted))).wanting(guaranteed("u1", 1))
    play.want(guaranteed("u2", 1))
    play.want(guaranteed("u3", 2))
    saved = play.core.tracked["u3"].saved
    message = "Resources cannot be allocated with Topology locality"
    assert (saved.rejected, saved.rejected_message) == ("TopologyAffinityError", message)
    assert play.events[-1].startswith(f"Warning TopologyAffinityError: {message}: topologyManagerPolicy restricted")


def test_an_edited_static_pod_gets_the_cpus_of_the_one_before_once_that_has_stopped() -> None:
    play = a_play().wanting(guaranteed("u1", 3, "web"))
    play.hang = {"KillPod"}
    play.drop("u1")
    play.want(guaranteed("u2", 3, "web"))
    assert (play.core.tracked["u2"].saved.rejected, cpus_of(play, "u2")) == ("", "none runs")
    play.restart()
    assert (cpus_of(play, "u1"), cpus_of(play, "u2")) == ("none runs", "1-3")


def test_a_restart_of_podsync_sets_every_cpuset_once_more_and_changes_none() -> None:
    play = a_play(listed=True).wanting(burstable("u1"), guaranteed("u2", 2))
    before, calls = (cpus_of(play, "u1"), cpus_of(play, "u2")), len(play.calls)
    play.restart()
    assert (cpus_of(play, "u1"), cpus_of(play, "u2")) == before
    later = [type(call).__name__ for call in play.calls[calls:]]
    assert later.count("SetContainerCpus") == 2 and "StartContainer" not in later


def test_a_cpuset_that_cannot_be_set_is_set_again_and_delays_no_start_until_then() -> None:
    play = a_play().wanting(burstable("u1"))
    play.fail = {"SetContainerCpus": ("Unknown", "no such cgroup")}
    play.want(guaranteed("u2", 2))
    assert (cpus_of(play, "u1"), cpus_of(play, "u2")) == ("0-3", "1-2")
    play.later(11)
    assert cpus_of(play, "u1") == "0,3"


def test_a_cpuset_that_cannot_be_set_is_one_event_with_the_cpus_until_it_is_set() -> None:
    play = a_play().wanting(burstable("u1"))
    play.fail_always = {"SetContainerCpus": ("Unknown", "no such cgroup")}
    play.want(guaranteed("u2", 2))
    play.later(35)
    text = "The container may still run on CPUs 1-2, because it cannot be moved to 0,3: no such cgroup"
    assert [event for event in play.events if "CPUSet" in event] == [f"Warning FailedCPUSet: {text}"]
    play.fail_always = {}
    play.later(11)
    play.fail = {"SetContainerCpus": ("Unknown", "busy")}
    play.drop("u2")
    play.want(guaranteed("u3", 1))
    assert len([event for event in play.events if "CPUSet" in event]) == 2


@pytest.mark.parametrize("code", ["NotFound", "Unavailable"])
def test_a_container_that_is_gone_or_a_runtime_that_is_away_refuses_no_cpuset(code: str) -> None:
    play = a_play().wanting(burstable("u1"))
    play.fail = {"SetContainerCpus": (code, "no such container")}
    play.want(guaranteed("u2", 2))
    assert not [event for event in play.events if "CPUSet" in event]


@pytest.mark.parametrize("period", [-1.0, 0.0, 1e-9])
def test_a_cpuset_that_cannot_be_set_is_no_storm_of_calls_whatever_the_period(period: float) -> None:
    play = a_play()
    play.core.node_state.cpu_retry_seconds = period
    play.want(burstable("u1"))
    play.fail_always = {"SetContainerCpus": ("Unknown", "no such cgroup")}
    play.handle(PodDesired(uid="u2", source="file", pod=guaranteed("u2", 2)))
    for _ in range(500):  # far more than are needed
        if play.queue:
            play._do(play.queue.pop(0))
    assert not play.queue and sum(type(call).__name__ == "SetContainerCpus" for call in play.calls) == 1


def test_an_update_waits_for_no_other_call_of_its_pod() -> None:
    play = a_play().wanting(burstable("u1"))
    play.hang = {"KillPod"}
    play.happen(PodEvicted(uid="u1", message="", grace_seconds=30))
    play.want(guaranteed("u2", 2))
    assert (cpus_of(play, "u1"), cpus_of(play, "u2")) == ("0,3", "1-2")


@pytest.mark.long
@pytest.mark.share(4)
@pytest.mark.parametrize("step", range(1, 60, 2))
def test_a_kill_at_any_step_gives_no_cpu_twice_and_loses_none(step: int) -> None:
    play = a_play(listed=True).wanting(burstable("u1"), guaranteed("u2", 1))
    play.kill_at = play.steps + step
    changes: list[Callable[[], None]] = [
        lambda: play.want(guaranteed("u3", 2)),
        lambda: play.drop("u2"),
        lambda: play.want(burstable("u4")),
    ]
    for change in changes:
        change()
        check_no_cpu_twice(play)
    assert cpus_of(play, "u2") == "none runs"
    assert (cpus_of(play, "u3"), cpus_of(play, "u1"), cpus_of(play, "u4")) == ("2-3", "0-1", "0-1")


@pytest.mark.parametrize(
    ("settings", "wanted", "message"),
    [
        (STATIC, {"cpu": "2", "memory": "64Mi"}, 'alongside CPU Manager policy "static"'),
        (STATIC, {"cpu": "1", "memory": "65Mi"}, ""),
        (STATIC_MEMORY, {"cpu": "1", "memory": "65Mi"}, 'alongside Memory Manager policy "Static"'),
        (STATIC_MEMORY, {"cpu": "2", "memory": "64Mi"}, ""),
    ],
)
def test_no_resize_changes_what_a_static_policy_has_given(
    settings: PlacementSettings, wanted: dict[str, str], message: str
) -> None:
    allocatable = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    facts = MachineFacts(allocatable=allocatable, placer=NodePlacer(MACHINE, settings))
    view = node_view(None, facts, pressures=(), supplemental_groups_policy=False)
    before, after = guaranteed("u1", 1), guaranteed("u1", 1)
    after["spec"]["containers"][0]["resources"] = {"requests": wanted, "limits": wanted}
    placed = PodPlacement(containers={"c": ContainerPlacement(cpus=frozenset({1}))})
    verdict = decide_resize(after, before, "Running", view, taken_by((before,)), placed)
    expected = f"Resize is infeasible for Guaranteed Pods {message}" if message else ""
    assert (verdict.reason, verdict.message) == ("Infeasible" if message else "", expected)


class TestInherited:
    """Has what a Go kubelet gave to pods of which there is no record yet."""

    GIVEN: ClassVar = {
        uid: PodPlacement(containers={"c": ContainerPlacement(cpus=frozenset({cpu}))})
        for uid, cpu in (("u1", 3), ("gone", 2))
    }

    def test_a_pod_keeps_its_cpus_and_others_get_none_of_them_before_it_is_listed(self) -> None:
        play = a_play(inherited=self.GIVEN, sources_complete=False).wanting(burstable("u2"), guaranteed("u3", 1))
        play.want(guaranteed("u1", 1))
        assert [cpus_of(play, uid) for uid in ("u1", "u2", "u3")] == ["3", "0", "1"]

    def test_what_a_pod_had_that_no_source_lists_is_free(self) -> None:
        play = a_play(inherited=self.GIVEN, listed=True).wanting(burstable("u2"), guaranteed("u3", 2))
        assert [cpus_of(play, uid) for uid in ("u2", "u3")] == ["0,3", "1-2"]

    def test_a_record_counts_more_than_a_file(self) -> None:
        play = a_play().wanting(guaranteed("u1", 1))
        play.inherited = dict.fromkeys(("u1", "u2"), self.GIVEN["u1"])
        play.restart()
        assert cpus_of(play, "u1") == "1"


class TestPodsWithResourcesOfTheirOwn:
    """Are placed as a whole with feature gate PodLevelResourceManagers, where the topology manager aligns pods."""

    def a_play(self, **fields: Any) -> Play:
        topology = TopologySettings(policy=TopologyPolicy.RESTRICTED, scope=TopologyScope.POD)
        placer = NodePlacer(MACHINE, replace(STATIC, topology=topology, pod_level=True))
        return Play(facts=replace(a_play().facts, placer=placer), **fields)

    def a_pod(self, uid: str, cpus: int, own: int = 0) -> Pod:
        """Return a pod of a container with `own` CPUs alone, without one for 0, and one that shares what is left."""
        amounts = {"cpu": str(own), "memory": "64Mi"}
        main = [a_container("main", resources={"limits": amounts, "requests": amounts})] if own else []
        whole = {"cpu": str(cpus), "memory": "128Mi"}
        return a_pod(uid, uid, containers=[*main, a_container("c")], resources={"limits": whole, "requests": whole})

    def cpus(self, play: Play, uid: str) -> dict[str, str]:
        """Return the cpusets of the pod's running containers in the runtime."""
        running = [each for each in play.containers.get(uid, []) if each.state is ContainerState.RUNNING]
        return {each.name: play.resources[each.id].get("cpuset_cpus", "") for each in running}

    def test_a_part_is_its_containers_alone_and_the_rest_is_the_pods(self) -> None:
        play = self.a_play().wanting(burstable("u1"))
        assert cpus_of(play, "u1") == "0-3"
        play.want(self.a_pod("u2", 3, own=1))
        assert (cpus_of(play, "u1"), self.cpus(play, "u2")) == ("0", {"main": "1", "c": "2-3"})
        play.want(burstable("u3"))
        assert cpus_of(play, "u3") == "0"
        quotas = {each.name: play.resources[each.id]["cpu_quota"] for each in play.containers["u2"]}
        assert quotas == {"main": -1, "c": 300_000}
        play.drop("u2")
        assert (cpus_of(play, "u1"), cpus_of(play, "u3")) == ("0-3", "0-3")

    def test_no_container_starts_in_the_pool_before_the_others_have_left_it(self) -> None:
        play = self.a_play().wanting(burstable("u1"))
        play.hang = {"SetContainerCpus"}
        play.want(self.a_pod("u2", 2))
        assert (cpus_of(play, "u1"), self.cpus(play, "u2")) == ("0-3", {})
        moving = [call for call in play.calls if isinstance(call, SetContainerCpus)][-1]
        assert (moving.uid, moving.cpus) == ("u1", "0,3")
        play.resources[moving.container_id]["cpuset_cpus"] = moving.cpus
        play.happen(CallDone(uid="u1", call=moving, completed_at=play.wall))
        assert self.cpus(play, "u2") == {"c": "1-2"}

    def test_a_pod_that_leaves_nothing_to_share_is_rejected(self) -> None:
        play = self.a_play().wanting(self.a_pod("u1", 2, own=2))
        assert play.core.tracked["u1"].saved.rejected == "EmptyPodSharedPoolError"
        play.want(self.a_pod("u2", 3))
        assert self.cpus(play, "u2") == {"c": "1-3"}

    @pytest.mark.long
    @pytest.mark.share(4)
    @pytest.mark.parametrize("step", range(1, 60, 2))
    def test_a_kill_at_any_step_keeps_what_the_pod_has(self, step: int) -> None:
        play = self.a_play(listed=True).wanting(burstable("u1"))
        play.kill_at = play.steps + step
        changes: list[Callable[[], None]] = [
            lambda: play.want(self.a_pod("u2", 2, own=1)),
            lambda: play.want(guaranteed("u3", 1)),
            lambda: play.want(burstable("u4")),
        ]
        for change in changes:
            change()
        assert (self.cpus(play, "u2"), cpus_of(play, "u3")) == ({"main": "1", "c": "2"}, "3")
        assert (cpus_of(play, "u1"), cpus_of(play, "u4")) == ("0", "0")

    @pytest.mark.parametrize(
        ("pod_level", "wanted", "message"),
        [
            (True, "3", 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'),
            (True, "2", ""),
            (False, "3", ""),
        ],
    )
    def test_no_resize_changes_what_the_pod_has_as_a_whole(self, pod_level: bool, wanted: str, message: str) -> None:
        placer = NodePlacer(MACHINE, replace(STATIC, pod_level=pod_level))
        facts = MachineFacts(allocatable={"cpu": "8", "memory": "8Gi", "pods": "10"}, placer=placer)
        view = node_view(None, facts, pressures=(), supplemental_groups_policy=False)
        before, after = self.a_pod("u1", 2), self.a_pod("u1", int(wanted))
        verdict = decide_resize(after, before, "Running", view, taken_by((before,)), PodPlacement())
        assert verdict.message == message
