"""What a cell may cost: nothing but a few seconds, and exec sessions only where a victim carries their bytes."""

from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, RuntimePod, Sandbox, SandboxState
from tests.chaos.cells import Cell, Hit, Moment
from tests.chaos.costs import DIRECT, PROXIED, Again, Costs, Limits, complaints, differences, made_again, replaced

LIMITS = Limits(2.0, {Moment.IDLE: 0.5, Moment.MID_FLIGHT: 4.0})
LENIENT = replace(LIMITS, slowness=1.0)
FREE = Costs(new_pod=1.5, back=1.2, in_sync=2.0, lease_gap=2.1)


def pod(name: str = "web", *, box: str = "s1", attempt: int = 0, containers: tuple[Container, ...] = ()) -> RuntimePod:
    boxes = (Sandbox(id=box, attempt=attempt, state=SandboxState.READY, created_at=1),)
    return RuntimePod(
        uid=f"uid-{name}", name=name, namespace="default", observed_at=1.0, sandboxes=boxes, containers=containers
    )


def container(
    identity: str, name: str = "main", attempt: int = 0, state: ContainerState = ContainerState.RUNNING
) -> Container:
    return Container(id=identity, name=name, attempt=attempt, sandbox_id="s1", state=state, created_at=1)


def test_a_cell_that_cost_nothing_passes() -> None:
    assert complaints(Cell(("podsync",)), FREE, LIMITS) == []


def test_each_cost_is_reported() -> None:
    costs = replace(
        FREE, restarted=("web/main",), pod_flaps=("pod flap",), node_flaps=("node flap",), differences=("left over: x",)
    )
    found = complaints(Cell(("podsync",)), costs, LIMITS)
    assert found == ["restarted web/main", "pod flap", "node flap", "left over: x"]


def test_a_new_pod_has_three_seconds_after_the_kill_of_one_process() -> None:
    slow = replace(FREE, new_pod=3.01)
    assert complaints(Cell(("podsync",)), slow, LIMITS) == ["new pod Ready after 3.01 s, limit 3.00 s"]
    assert complaints(Cell(("podsync", "pleg")), slow, LIMITS) == []
    assert complaints(Cell(("podsync",), moment=Moment.MID_FLIGHT), replace(FREE, new_pod=6.9), LIMITS) == []
    assert complaints(Cell(("podsync",), moment=Moment.MID_FLIGHT), replace(FREE, new_pod=7.1), LIMITS)
    assert complaints(Cell(("podsync",)), replace(FREE, new_pod=None), LIMITS)


def test_a_stop_gives_its_time_only_to_those_on_the_way_of_a_pod() -> None:
    stopped = replace(FREE, new_pod=6.0, away=5.0)
    assert complaints(Cell(("podsync",), Hit.STOP), stopped, LIMITS) == []
    assert complaints(Cell(("server",), Hit.STOP), stopped, LIMITS)
    assert complaints(Cell(("supervisord",)), stopped, LIMITS)


def test_after_the_api_server_is_back_all_is_in_sync_within_sixteen_seconds() -> None:
    cell = Cell(("api-server",))
    assert complaints(cell, replace(FREE, new_pod=19.9, away=4.0), LIMITS) == []
    assert complaints(cell, replace(FREE, new_pod=20.1, away=4.0), LIMITS)


def test_the_lease_may_be_two_intervals_old() -> None:
    old = replace(FREE, lease_gap=4.1)
    assert complaints(Cell(("podsync",)), old, LIMITS) == ["lease 4.1 s old, limit 4.0 s"]
    away = replace(old, lease_gap=8.0, away=5.0)
    assert complaints(Cell(("status",), Hit.STOP), away, LIMITS) == []
    assert complaints(Cell(("volume",), Hit.STOP), away, LIMITS)


def test_a_busy_machine_is_measured_by_how_long_processes_take_to_return() -> None:
    slow = replace(FREE, new_pod=6.5, back=5.0)
    assert complaints(Cell(("podsync",)), slow, LIMITS)
    assert complaints(Cell(("podsync",)), slow, LENIENT) == []
    assert complaints(Cell(("podsync",)), replace(slow, new_pod=7.1), LENIENT)
    assert complaints(Cell(("podsync",)), replace(slow, new_pod=2.9, back=0.1), LENIENT) == []
    assert complaints(Cell(("podsync",)), replace(slow, new_pod=8.9), replace(LENIENT, slowness=3.0)) == []
    assert complaints(Cell(("podsync",)), replace(slow, new_pod=9.1), replace(LENIENT, slowness=3.0))


def test_sessions_may_end_only_with_what_carries_their_bytes() -> None:
    lost = replace(FREE, sessions_lost=(DIRECT, PROXIED))
    assert complaints(Cell(("server",)), lost, LIMITS) == []
    assert complaints(Cell(("containerd",)), lost, LIMITS) == []
    assert complaints(Cell(("api-server",)), lost, LIMITS) == ["exec session through the server port lost"]
    assert len(complaints(Cell(("bootstrap",)), lost, LIMITS)) == 2


def test_what_was_waited_for_in_vain_is_the_complaint() -> None:
    assert complaints(Cell(("podsync",)), Costs(trouble="waited 90 s"), LIMITS) == ["waited 90 s"]


def test_another_container_or_sandbox_of_a_pod_that_stayed_is_a_restart() -> None:
    before = {"u": pod(containers=(container("c1"),))}
    assert replaced(before, before) == ()
    assert replaced(before, {"u": pod(containers=(container("c2"),))}) == ("web/main",)
    assert replaced(before, {"u": pod(box="s2", containers=(container("c1"),))}) == ("web/sandbox",)
    assert replaced(before, {}) == ("web/main", "web/sandbox")


def test_the_end_state_is_one_sandbox_and_one_container_per_name_of_the_first_attempt() -> None:
    wanted = {"u": ("main",)}
    good = pod(containers=(container("c1"),))
    assert differences(wanted, {"u": good}) == ()
    assert differences(wanted, {}) == ("not in the runtime: u",)
    assert differences({}, {"u": good}) == ("left over: web",)
    assert differences(wanted, {"u": replace(good, sandboxes=good.sandboxes * 2)})
    assert differences(wanted, {"u": pod(containers=(container("c1"), container("c2")))})
    assert differences(wanted, {"u": pod(containers=(container("c1", attempt=1),))}) == ("web: attempts main 1",)
    ended = pod(containers=(container("c1"), container("c0", state=ContainerState.EXITED)))
    assert differences(wanted, {"u": ended}) == ("web: ended containers main 0",)


def test_a_runtime_that_died_in_the_middle_may_need_a_second_attempt() -> None:
    second = pod(attempt=1, containers=(container("c1", attempt=1), container("c0", state=ContainerState.EXITED)))
    assert differences({"u": ("main",)}, {"u": second})
    assert differences({"u": ("main",)}, {"u": second}, Again.EVERYTHING) == ()
    assert differences({"u": ("main",)}, {"u": pod()}, Again.EVERYTHING) == ("web: containers none",)


def test_a_sandbox_whose_caller_died_may_be_made_again_and_its_containers_may_not() -> None:
    second = pod(attempt=1, containers=(container("c1"),))
    assert differences({"u": ("main",)}, {"u": second}) == ("web: sandboxes 1 READY",)
    assert differences({"u": ("main",)}, {"u": second}, Again.SANDBOXES) == ()
    third = pod(attempt=1, containers=(container("c1", attempt=1),))
    assert differences({"u": ("main",)}, {"u": third}, Again.SANDBOXES) == ("web: attempts main 1",)
    two = replace(second, sandboxes=second.sandboxes * 2)
    assert differences({"u": ("main",)}, {"u": two}, Again.SANDBOXES)


def test_the_victim_of_a_kill_decides_what_may_be_made_again() -> None:
    assert made_again(Cell(("podsync",))) is Again.NOTHING
    assert made_again(Cell(("podsync",), moment=Moment.MID_FLIGHT)) is Again.SANDBOXES
    assert made_again(Cell(("containerd",), moment=Moment.MID_FLIGHT)) is Again.EVERYTHING
    assert made_again(Cell(("sources", "status"), moment=Moment.MID_FLIGHT)) is Again.NOTHING


def test_an_ended_sandbox_of_a_deleted_pod_awaits_collection_and_a_live_one_is_left_over() -> None:
    ended = pod(containers=())
    ended = replace(ended, sandboxes=(replace(ended.sandboxes[0], state=SandboxState.NOTREADY),))
    assert differences({}, {"u": ended}) == ()
    assert differences({}, {"u": pod()}) == ("left over: web",)
