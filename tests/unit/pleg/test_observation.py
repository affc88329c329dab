"""The core of pleg, event by event: what is looked at, watched and published."""

from math import inf

from services.pleg.core.events import (
    Event,
    EventStreamChanged,
    ObservationFailed,
    PodObserved,
    ProcessExited,
    Relisted,
    RuntimeEventReceived,
    StatusContainersChanged,
    TimePassed,
    WatchFailed,
)
from services.pleg.core.instructions import (
    Instruction,
    MarkComplete,
    ObservePod,
    PublishPod,
    Relist,
    UnwatchProcess,
    WatchProcess,
    WithdrawPod,
)
from services.pleg.core.observation import RELIST_SECONDS, UNHINTED_RELIST_SECONDS, Observation
from services.pleg.core.processes import MAX_LOOKS
from shared.model.runtime import Container, ContainerState, RuntimePod, Sandbox, SandboxState

RUNNING, EXITED = ContainerState.RUNNING, ContainerState.EXITED


def pod(at: float, state: ContainerState = RUNNING, *, uid: str = "u", pid: int = 100) -> RuntimePod:
    """A pod with a sandbox `s-<uid>` (pid 50) and a container `c-<uid>`."""
    container = Container(
        id=f"c-{uid}",
        name="c",
        attempt=0,
        sandbox_id=f"s-{uid}",
        state=state,
        created_at=1,
        pid=pid if state is RUNNING else 0,
    )
    sandbox = Sandbox(id=f"s-{uid}", attempt=0, state=SandboxState.READY, created_at=1, ips=("10.0.0.1",), pid=50)
    return RuntimePod(
        uid=uid, name=uid, namespace="default", observed_at=at, sandboxes=(sandbox,), containers=(container,)
    )


def observing(*pods: RuntimePod, at: float = 1.0) -> Observation:
    """A core after its first full list and the look that confirms the watches."""
    core = Observation()
    core.handle(Relisted({p.uid: p for p in pods}, at), at)
    for seen in pods:
        core.handle(PodObserved(seen.uid, seen, at), at)
    core.validate()
    return core


def handle(core: Observation, event: Event, now: float) -> list[Instruction]:
    instructions = core.handle(event, now)
    core.validate()
    return instructions


def test_a_first_list_publishes_watches_and_then_is_complete() -> None:
    instructions = handle(Observation(), Relisted({"u": pod(1.0)}, 1.0), 1.0)
    assert instructions == [
        PublishPod(pod(1.0), "new to us"),
        WatchProcess("s-u", 50),
        WatchProcess("c-u", 100),
        ObservePod("u", "watched from now on"),
        MarkComplete(),
    ]


def test_a_list_that_could_not_show_a_new_pod_is_not_complete() -> None:
    core = Observation()
    instructions = handle(core, Relisted({"u": pod(1.0)}, 1.0, frozenset({"v"})), 1.0)
    assert MarkComplete() not in instructions
    assert MarkComplete() in handle(core, Relisted({"u": pod(2.0), "v": pod(2.0, uid="v")}, 2.0), 2.0)


def test_a_pod_that_could_not_be_shown_is_neither_changed_nor_withdrawn() -> None:
    core = observing(pod(1.0))
    assert handle(core, Relisted({}, 2.0, frozenset({"u"})), 2.0) == []


def test_a_pid_that_has_changed_after_the_watch_was_opened_is_watched_again() -> None:
    core = observing(pod(1.0))
    instructions = handle(core, PodObserved("u", pod(2.0, pid=101), 2.0), 2.0)
    assert instructions[1:] == [
        UnwatchProcess("c-u"),
        WatchProcess("c-u", 101),
        ObservePod("u", "watched from now on"),
    ]


def test_a_container_seen_exited_after_the_watch_was_opened_is_watched_no_longer() -> None:
    core = observing(pod(1.0))
    assert UnwatchProcess("c-u") in handle(core, PodObserved("u", pod(2.0, EXITED), 2.0), 2.0)


def test_an_exit_hint_looks_now_and_an_unconfirmed_one_again_and_again_for_a_second() -> None:
    core = observing(pod(1.0))
    assert handle(core, ProcessExited("c-u"), 2.0) == [ObservePod("u", "process exited")]
    now, delays = 2.0, []
    for _ in range(20):
        handle(core, PodObserved("u", pod(now), now), now)
        if core.next_look == inf:
            break
        delays.append(round((core.next_look - now) * 1000))
        now = core.next_look
        assert handle(core, TimePassed(), now) == [ObservePod("u", "an exit is unconfirmed")]
    assert delays == [5, 7, 10, 14, 19, 27, 38, 53, 74, 103, 145, 202, 283, 397]
    assert core.relist_period == UNHINTED_RELIST_SECONDS


def test_ends_of_many_processes_at_the_same_time_are_looked_at_less_often() -> None:
    pods = [pod(1.0, uid=f"u{number}") for number in range(30)]
    core = observing(*pods)
    for each in pods:
        handle(core, ProcessExited(f"c-{each.uid}"), 2.0)
    for each in pods:
        handle(core, PodObserved(each.uid, pod(2.0, uid=each.uid), 2.0), 2.0)
    assert round((core.next_look - 2.0) * 1000) == 40
    assert len(handle(core, TimePassed(), core.next_look)) == len(pods)


def test_ends_that_are_looked_at_no_more_delay_no_other_look() -> None:
    stuck = [pod(1.0, uid=f"s{number}") for number in range(40)]
    core = observing(*stuck, pod(1.0))
    for each in stuck:
        handle(core, ProcessExited(f"c-{each.uid}"), 2.0)
    now = 2.0
    for _ in range(MAX_LOOKS + 1):
        now += 10.0
        for each in stuck:
            handle(core, PodObserved(each.uid, pod(now, uid=each.uid), now), now)
        handle(core, TimePassed(), now + 9.0)
    assert core.next_look == inf
    handle(core, ProcessExited("c-u"), now)
    handle(core, PodObserved("u", pod(now), now), now)
    assert round((core.next_look - now) * 1000) == 5


def test_a_look_that_began_before_the_exit_does_not_count_as_one() -> None:
    core = observing(pod(1.0))
    handle(core, RuntimeEventReceived("u", "STARTED"), 1.5)
    handle(core, ProcessExited("c-u"), 2.0)
    instructions = handle(core, PodObserved("u", pod(1.5), 1.5), 2.001)
    assert instructions[-1] == ObservePod("u", "process exited")
    assert core.next_look == inf


def test_an_exit_of_something_unknown_is_nothing() -> None:
    core = observing(pod(1.0))
    assert handle(core, ProcessExited("other"), 2.0) == []
    assert handle(core, WatchFailed("other", gone=True), 2.0) == []


def test_a_process_gone_before_it_could_be_watched_counts_as_exited() -> None:
    core = observing(pod(1.0))
    assert handle(core, WatchFailed("c-u", gone=True), 2.0) == [ObservePod("u", "process exited")]


def test_a_process_the_kernel_will_not_let_us_watch_shortens_the_list_period_and_is_tried_again() -> None:
    core = observing(pod(1.0))
    assert core.relist_period == RELIST_SECONDS
    assert handle(core, WatchFailed("c-u", gone=False), 2.0) == []
    assert core.relist_period == UNHINTED_RELIST_SECONDS
    assert WatchProcess("c-u", 100) not in handle(core, PodObserved("u", pod(3.0), 3.0), 3.0)
    assert WatchProcess("c-u", 100) in handle(core, Relisted({"u": pod(4.0)}, 4.0), 4.0)


def test_a_runtime_that_does_not_report_the_pid_is_listed_often_unless_it_has_events() -> None:
    core = observing(pod(1.0, pid=0))
    assert core.relist_period == UNHINTED_RELIST_SECONDS
    handle(core, EventStreamChanged(True), 2.0)
    assert core.relist_period == RELIST_SECONDS


def test_an_observation_begun_before_the_last_one_taken_changes_nothing() -> None:
    core = observing(pod(1.0))
    handle(core, PodObserved("u", pod(3.0, EXITED), 3.0), 3.0)
    assert handle(core, Relisted({"u": pod(2.0)}, 2.0), 4.0) == []


def test_a_pod_seen_gone_does_not_come_back_from_an_older_list() -> None:
    core = observing(pod(1.0))
    assert WithdrawPod("u", "the runtime has it no more") in handle(core, PodObserved("u", None, 3.0), 3.0)
    assert handle(core, Relisted({"u": pod(2.0)}, 2.0), 4.0) == []


def test_a_pod_missing_from_a_list_is_withdrawn_and_its_processes_are_let_go() -> None:
    core = observing(pod(1.0))
    assert handle(core, Relisted({}, 2.0), 2.0) == [
        UnwatchProcess("s-u"),
        UnwatchProcess("c-u"),
        WithdrawPod("u", "the runtime has it no more"),
    ]


def test_a_pod_begun_after_the_list_is_not_withdrawn_by_it() -> None:
    core = observing()
    handle(core, PodObserved("u", pod(3.0), 3.0), 3.0)
    assert handle(core, Relisted({}, 2.0), 4.0) == []


def test_an_unchanged_pod_is_published_once_more_from_a_clearly_later_observation() -> None:
    core = observing(pod(1.0))
    assert handle(core, Relisted({"u": pod(1.5)}, 1.5), 1.5) == []
    assert handle(core, Relisted({"u": pod(6.0)}, 6.0), 6.0) == [PublishPod(pod(6.0), "still so")]
    assert handle(core, Relisted({"u": pod(11.0)}, 11.0), 11.0) == []


def test_hints_during_a_look_lead_to_one_more_look_with_the_newest_cause() -> None:
    core = observing(pod(1.0))
    assert handle(core, RuntimeEventReceived("u", "STARTED"), 2.0) == [ObservePod("u", "runtime event STARTED")]
    assert handle(core, RuntimeEventReceived("u", "STOPPED"), 2.1) == []
    assert handle(core, StatusContainersChanged("u", ("new",)), 2.2) == []
    assert handle(core, PodObserved("u", pod(2.0), 2.0), 2.3)[-1] == ObservePod(
        "u", "status names a container not seen"
    )


def test_a_failed_look_asks_for_a_list() -> None:
    core = observing(pod(1.0))
    handle(core, RuntimeEventReceived("u", "STARTED"), 2.0)
    assert handle(core, ObservationFailed("u"), 2.1) == [Relist("a look failed")]
    assert handle(core, RuntimeEventReceived("u", "STARTED"), 2.2) == [ObservePod("u", "runtime event STARTED")]


def test_a_status_that_names_only_what_was_seen_asks_for_nothing() -> None:
    core = observing(pod(1.0))
    assert handle(core, StatusContainersChanged("u", ("c-u",)), 2.0) == []
    assert handle(core, StatusContainersChanged("u", ()), 2.0) == []


def test_a_pod_that_the_runtime_lost_before_the_first_look_is_published_without_containers() -> None:
    core = observing()
    named = StatusContainersChanged("u", ("c-u",), "web", "default")
    assert handle(core, Relisted({}, 1.5), 2.5) == []
    assert handle(core, named, 2.0) == [ObservePod("u", "status names a container not seen")]
    assert handle(core, Relisted({}, 1.9), 2.2) == []  # begun before the status was received
    lost = RuntimePod(uid="u", name="web", namespace="default", observed_at=2.0)
    assert handle(core, PodObserved("u", None, 2.0), 2.3) == [PublishPod(lost, "new to us")]
    assert handle(core, named, 2.5) == []
    assert handle(core, Relisted({}, 2.6), 2.7) == []
    assert handle(core, StatusContainersChanged("u", ()), 3.0) == []
    assert handle(core, Relisted({}, 4.0), 4.1) == [WithdrawPod("u", "the runtime has it no more")]


def test_a_pod_that_the_runtime_lost_is_found_by_the_next_list_where_the_look_failed() -> None:
    core = observing()
    handle(core, StatusContainersChanged("u", ("c-u",), "web", "default"), 2.0)
    assert handle(core, ObservationFailed("u"), 2.1) == [Relist("a look failed")]
    lost = RuntimePod(uid="u", name="web", namespace="default", observed_at=2.2)
    assert handle(core, Relisted({}, 2.2), 2.3) == [PublishPod(lost, "new to us")]
    made_again = handle(core, Relisted({"u": pod(5.0)}, 5.0), 5.1)
    assert made_again[0] == PublishPod(pod(5.0), "changed")
