"""Which events change nothing in podsync's core, and which do. Tests the core alone."""

from bus.messages.podsync import PodState
from services.podsync.core.pod.events import PodDesired, PodObserved, RuntimeChanged, TimePassed
from services.podsync.core.pod.instructions import Instruction, PublishStatus, WakeAt
from shared.model.frozen_copy import replace
from shared.model.runtime import ContainerState
from tests.unit.podsync.play import Play, a_pod


def test_the_end_of_one_wait_is_no_news_for_the_other_pods() -> None:
    play = Play(fail_always={"StartContainer": ("Unknown", "no")})
    for number in range(3):
        play.want(a_pod(f"u{number}", f"web{number}"))
    waits = {uid: tracked.wake_at for uid, tracked in play.core.tracked.items()}
    first = min(waits.values())
    touched = play.core.node_state.take_in(TimePassed(), first)
    assert set(touched) == {uid for uid, at in waits.items() if at <= first}
    woken = play.core.handle(TimePassed(), first - 0.001)
    assert [instruction.when for instruction in woken if isinstance(instruction, WakeAt)] == [first]


def test_the_same_news_of_the_runtime_twice_asks_for_nothing() -> None:
    play = Play().wanting(a_pod())
    assert play.core.handle(RuntimeChanged(reachable=True, network_ready=True, cause="again"), play.wall) == []
    assert play.core.handle(RuntimeChanged(reachable=True, network_ready=False), play.wall) != []


def test_our_own_status_coming_back_is_no_news_and_the_condition_of_another_is() -> None:
    play = Play(source="api")
    pod = a_pod()
    play.want(pod)
    back = pod | {"status": play.statuses["u1"].status}
    assert play.core.handle(PodDesired(uid="u1", source="api", pod=back), play.wall) == []
    gate = {"type": "example.com/gate", "status": "True"}
    theirs = back | {"status": back["status"] | {"conditions": [*back["status"]["conditions"], gate]}}
    instructions = play.core.handle(PodDesired(uid="u1", source="api", pod=theirs), play.wall)
    assert gate in _shown(instructions)[0].status.status["conditions"]


def test_an_observation_that_shows_what_is_known_asks_for_nothing_and_another_does() -> None:
    play = Play().wanting(a_pod())
    known = play.look("u1")
    with_pids = tuple(replace(container, pid=100) for container in known.containers)
    again = replace(known, observed_at=play.wall + 1.0, containers=with_pids)
    assert play.core.handle(PodObserved(observation=again), play.wall + 1.0) == []
    ended = tuple(replace(container, state=ContainerState.EXITED) for container in known.containers)
    exited = replace(known, observed_at=play.wall + 2.0, containers=ended)
    assert play.core.handle(PodObserved(observation=exited), play.wall + 2.0) != []


def test_the_object_of_a_pod_that_is_deleted_and_has_finished_asks_for_nothing() -> None:
    play = Play(source="api")
    pod = a_pod()
    play.want(pod)
    metadata = pod["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    play.want(pod | {"metadata": metadata})
    assert play.published["u1"].admitted.state is PodState.FINISHED
    shown = {"metadata": metadata | {"deletionGracePeriodSeconds": 0}, "status": play.statuses["u1"].status}
    assert play.core.handle(PodDesired(uid="u1", source="api", pod=pod | shown), play.wall) == []
    play.drop("u1")
    play.later(120.0)
    assert "u1" not in play.core.tracked


def test_the_end_that_we_have_shown_is_no_news_and_one_that_another_has_written_is() -> None:
    play = Play(source="api")
    pod = a_pod(restartPolicy="Never")
    play.want(pod)
    running = play.statuses["u1"].status
    failed = pod | {"status": running | {"phase": "Failed"}}
    assert play.core.node_state.take_in(PodDesired(uid="u1", source="api", pod=failed), play.wall) == ["u1"]
    play = Play(source="api").wanting(pod)
    play.exit("u1", 0)
    assert play.statuses["u1"].status["phase"] == "Succeeded"
    back = pod | {"status": play.statuses["u1"].status}
    assert play.core.node_state.take_in(PodDesired(uid="u1", source="api", pod=back), play.wall) == []


def test_what_a_deleted_pod_shows_until_it_has_stopped_is_replaced_soon_and_an_exit_is_shown_at_once() -> None:
    play = Play(source="api")
    pod = a_pod(restartPolicy="Never")
    play.want(pod)
    metadata = pod["metadata"] | {"generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    deleted = PodDesired(uid="u1", source="api", pod=pod | {"metadata": metadata})
    assert [status.on_the_way for status in _shown(play.core.handle(deleted, play.wall))] == [True]
    play = Play(source="api").wanting(pod)
    known = play.look("u1")
    ended = tuple(replace(container, state=ContainerState.EXITED) for container in known.containers)
    exited = PodObserved(observation=replace(known, observed_at=play.wall + 1.0, containers=ended))
    (shown,) = _shown(play.core.handle(exited, play.wall + 1.0))
    assert "terminated" in shown.status.status["containerStatuses"][0]["state"]
    assert not shown.on_the_way


def test_a_deleted_pod_that_serves_no_longer_is_shown_at_once_while_a_container_of_it_runs() -> None:
    both = [{"name": name, "image": "busybox:1"} for name in ("main", "other")]
    for ends, on_the_way in ({"main"}, False), ({"main", "other"}, True):
        play = Play(source="api")
        pod = a_pod(containers=both)
        play.want(pod)
        metadata = pod["metadata"] | {"generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z"}
        play.core.handle(PodDesired(uid="u1", source="api", pod=pod | {"metadata": metadata}), play.wall)
        known = play.look("u1")
        left = tuple(
            replace(each, state=ContainerState.EXITED) if each.name in ends else each for each in known.containers
        )
        seen = PodObserved(observation=replace(known, observed_at=play.wall + 1.0, containers=left))
        (shown,) = _shown(play.core.handle(seen, play.wall + 1.0))
        ready = {each["type"]: each["status"] for each in shown.status.status["conditions"]}["Ready"]
        assert (ready, shown.on_the_way) == ("False", on_the_way)


def _shown(instructions: list[Instruction]) -> list[PublishStatus]:
    return [i for i in instructions if isinstance(i, PublishStatus)]
