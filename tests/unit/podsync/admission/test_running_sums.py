"""What the pods of the node take follows each change of a pod, and is not added up again for each decision."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.podsync.core.admission import active_pods, taken
from services.podsync.core.admission.admitting import Admissions
from services.podsync.core.admission.counted import taken_by_pods
from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.admission.taken import Taken
from services.podsync.core.pod.tracked_pods import TrackedPods
from shared.podspec import resources
from tests.unit.podsync.play import Play, a_container, a_pod

FACTS = MachineFacts(node_name="n1", allocatable={"cpu": "4", "memory": "8Gi", "pods": "30"})
Sums = tuple[set[str], dict[str, int], dict[tuple[str, int], dict[str, set[str]]]]


def sums_of(found: Taken) -> Sums:
    """UIDs, nanos of each resource, ports."""
    assert found.count == len(found.pods)
    ports = {port: {address: set(uids) for address, uids in by.items()} for port, by in found.ports.items()}
    return set(found.pods), {name: amount.nanos for name, amount in found.used.items() if amount}, ports


def added_up_again(play: Play) -> Sums:
    """The same of a process that tracks these pods from now on."""
    pods = TrackedPods()
    for tracked in play.core.tracked.values():
        pods.add(tracked)
    again = Admissions(pods, play.core.node_state.desired, FACTS, "")
    again.sources_complete = play.core.node_state.admissions.sources_complete
    return sums_of(taken_by_pods(again.active()))


def drawn_pod(chance: random.Random, uid: str, generation: int = 1) -> dict[str, Any]:
    requests = {"cpu": chance.choice(("100m", "500m", "1")), "memory": chance.choice(("64Mi", "1Gi"))}
    port = {"containerPort": 80, "hostPort": chance.choice((8080, 8081)), "hostIP": chance.choice(("", "10.0.0.1"))}
    container = a_container("c", resources={"requests": requests}, ports=[port] if chance.random() < 0.4 else [])
    pod = a_pod(uid, f"web-{uid}", containers=[container], restartPolicy="Never")
    pod["metadata"]["generation"] = generation
    return pod


def change(play: Play, chance: random.Random, step: int) -> None:
    running = [uid for uid in play.wanted if play.running(uid)]
    match chance.choice(("add", "add", "drop", "end", "resize", "restart", "hang", "later")):
        case "add":
            play.want(drawn_pod(chance, f"u{step}"))
        case "drop" if play.wanted:
            play.drop(chance.choice(list(play.wanted)))
        case "end" if running:
            play.exit(chance.choice(running), chance.choice((0, 1)))
        case "resize" if running:
            uid = chance.choice(running)
            pod = drawn_pod(chance, uid, step + 2)
            pod["spec"]["containers"][0]["ports"] = play.wanted[uid]["spec"]["containers"][0]["ports"]
            play.want(pod)
        case "restart":
            play.restart()
        case "hang":
            play.hang.add(chance.choice(("ResizePod", "KillPod", "StartContainer")))
        case _:
            play.later(30)


@pytest.mark.long
@pytest.mark.share(4)
@pytest.mark.parametrize("seed", range(10))
def test_after_each_change_the_sums_are_those_that_are_added_up_again(seed: int) -> None:
    chance = random.Random(seed)
    play = Play(facts=FACTS, source="api")
    seen: set[PodState] = set()
    for step in range(60):
        change(play, chance, step)
        assert sums_of(play.core.node_state.admissions.taken()) == added_up_again(play), step
        seen |= {tracked.saved.state for tracked in play.core.tracked.values()}
    assert {PodState.SYNC, PodState.FINISHED} <= seen


def test_a_decision_reads_the_pods_that_have_changed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_for_one_more(others: int) -> int:
        play = Play(facts=MachineFacts(node_name="n1", allocatable={"cpu": "100", "pods": "500"}), source="api")
        for number in range(others):
            play.want(drawn_pod(random.Random(3), f"u{number}"))
        read = Counter[str]()

        def counting(name: str, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
            def count(of: Any) -> Any:
                read[name] += 1
                return original(of)

            return count

        for module, name in ((active_pods, "counted_requests"), (taken, "host_ports"), (resources, "parse_quantity")):
            monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
        play.want(drawn_pod(random.Random(3), "last"))
        monkeypatch.undo()
        assert play.running("last")
        return read.total()

    assert read_for_one_more(40) == read_for_one_more(10) < 40
