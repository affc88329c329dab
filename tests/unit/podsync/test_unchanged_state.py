"""Which events change nothing in podsync's core, and which do. Tests the core alone."""

from services.podsync.core.pod.events import PodDesired, RuntimeChanged, TimePassed
from services.podsync.core.pod.instructions import PublishStatus, WakeAt
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
    play = Play()
    play.want(a_pod())
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
    published = [i for i in instructions if isinstance(i, PublishStatus)]
    assert gate in published[0].status.status["conditions"]
