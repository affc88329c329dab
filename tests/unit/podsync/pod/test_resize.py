"""What podsync does when a source lists other resources for a pod (pods.md 5.6)."""

from typing import Any

import pytest

from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.pod.events import NodeChanged, PodDesired
from services.podsync.core.pod.saved_format import restore
from tests.unit.podsync.play import Play, Pod, a_container, a_pod, every_step

SMALL = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m"}}
LARGE = {"requests": {"cpu": "300m", "memory": "64Mi"}, "limits": {"cpu": "400m"}}
HUGE = {"requests": {"cpu": "3", "memory": "64Mi"}, "limits": {"cpu": "4"}}
NODE = MachineFacts(allocatable={"cpu": "1", "memory": "1Gi", "pods": "10"})


def sized(resources: dict[str, Any], generation: int = 1, uid: str = "u1", **spec: Any) -> Pod:
    pod = a_pod(uid, f"web-{uid}", containers=[a_container("c", resources=resources)], **spec)
    pod["metadata"]["generation"] = generation
    return pod


def resized(**options: Any) -> Play:
    return Play(source="api", **options).wanting(sized(SMALL), sized(LARGE, 2))


def status(play: Play, uid: str = "u1") -> dict[str, Any]:
    return play.statuses[uid].status


def condition(play: Play, kind: str = "PodResizePending", uid: str = "u1") -> dict[str, Any]:
    return next((c for c in status(play, uid)["conditions"] if c["type"] == kind), {})


def events(play: Play, reason: str = "Resize") -> list[str]:
    return [event for event in play.events if f" {reason}" in event]


def resources(play: Play, uid: str = "u1") -> dict[str, Any]:
    shown = status(play, uid)["containerStatuses"][0]
    return {"resources": shown["resources"], "allocated": shown["allocatedResources"]}


def test_a_running_container_is_given_what_the_source_lists() -> None:
    play = resized()
    assert resources(play) == {"resources": LARGE, "allocated": LARGE["requests"]}
    assert status(play)["allocatedResources"] == LARGE["requests"]
    assert play.made == [("u1", "c", 0)] and play.stopped == []
    assert play.resources["c002"]["cpu_quota"] == 40_000 and play.resources["c002"]["cpu_shares"] == 307
    assert play.cgroups["u1"].cpu_quota == 40_000 and play.cgroups["u1"].cpu_shares == 307
    assert condition(play) == condition(play, "PodResizeInProgress") == {}


def test_it_starts_and_completes_with_an_event() -> None:
    details = (
        '{"containers":[{"name":"c","resources":{"limits":{"cpu":"400m"},"requests":{"cpu":"300m","memory":"64Mi"}}}],'
        '"generation":2}'
    )
    assert events(resized()) == [
        f"Normal ResizeStarted: Pod resize started: {details}",
        f"Normal ResizeCompleted: Pod resize completed: {details}",
    ]


def test_while_it_is_in_progress_the_status_shows_what_the_container_has() -> None:
    play = resized(hang={"ResizePod"})
    assert resources(play) == {"resources": SMALL, "allocated": LARGE["requests"]}
    found = condition(play, "PodResizeInProgress")
    assert (found["status"], found["observedGeneration"], "reason" in found) == ("True", 2, False)
    assert found["lastProbeTime"] == found["lastTransitionTime"]


def test_more_than_the_node_has_is_infeasible_and_is_an_event_once_for_each_generation() -> None:
    play = Play(source="api", facts=NODE).wanting(sized(SMALL), sized(HUGE, 2), sized(HUGE, 2, priority=1))
    message = "Node didn't have enough capacity: cpu, requested: 3000, capacity: 1000"
    found = condition(play)
    assert (found["reason"], found["message"], found["observedGeneration"]) == ("Infeasible", message, 2)
    assert resources(play) == {"resources": SMALL, "allocated": SMALL["requests"]}
    text = (
        'Warning ResizeInfeasible: Pod resize Infeasible: {"containers":[{"name":"c","resources":{"limits":'
        '{"cpu":"4"},"requests":{"cpu":"3","memory":"64Mi"}}}],"generation":2,"error":'
        f'"{message}"}}'
    )
    assert events(play) == [text]
    play.want(sized(HUGE, 3))
    assert len(events(play)) == 2 and condition(play)["observedGeneration"] == 3


def crowded(**options: Any) -> Play:
    """A node of one CPU on which another pod has 800m, and `u1` lists 300m instead of 100m."""
    play = Play(source="api", facts=NODE, **options).wanting(sized({"requests": {"cpu": "800m"}}, uid="u0"))
    play.want(sized(SMALL))
    play.want(sized(LARGE, 2))
    return play


def test_without_room_it_is_deferred_and_the_pod_keeps_what_it_has() -> None:
    play = crowded()
    message = "Node didn't have enough resource: cpu, requested: 300, used: 800, capacity: 1000"
    assert (condition(play)["reason"], condition(play)["message"]) == ("Deferred", message)
    assert resources(play) == {"resources": SMALL, "allocated": SMALL["requests"]}
    assert len(events(play, "ResizeDeferred")) == 1 and play.writes == []
    play.exit("u1", 1)
    assert play.core.tracked["u1"].containers[0]["resources"] == SMALL


def test_it_is_done_when_another_pod_is_gone() -> None:
    play = crowded()
    play.drop("u0")
    assert resources(play)["resources"] == LARGE and condition(play) == {}


def test_it_is_done_when_another_pod_shrinks() -> None:
    play = crowded()
    play.want(sized({"requests": {"cpu": "600m"}}, 2, uid="u0"))
    assert resources(play)["resources"] == LARGE and condition(play) == {}


def test_it_is_done_when_another_pod_has_ended() -> None:
    play = Play(source="api", facts=NODE).wanting(sized({"requests": {"cpu": "800m"}}, uid="u0", restartPolicy="Never"))
    play.want(sized(SMALL))
    play.want(sized(LARGE, 2))
    play.exit("u0", 0)
    assert status(play, "u0")["phase"] == "Succeeded"
    assert resources(play)["resources"] == LARGE and condition(play) == {}


def test_it_is_decided_again_after_30_s_and_then_every_3_minutes() -> None:
    play = crowded()
    play.core.node_state.admissions.facts = MachineFacts(allocatable={"cpu": "2"})
    play.later(29)
    assert condition(play)
    play.later(2)
    assert condition(play) == {}
    play = crowded()
    play.later(31)
    play.core.node_state.admissions.facts = MachineFacts(allocatable={"cpu": "2"})
    play.later(178)
    assert condition(play)
    play.later(4)
    assert condition(play) == {}


def test_of_several_the_first_in_the_queue_gets_the_room() -> None:
    """Without more requests, then by priority, QoS class and age."""
    guaranteed = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}}
    more = {"requests": {"cpu": "300m", "memory": "64Mi"}, "limits": {"cpu": "300m", "memory": "64Mi"}}
    play = Play(source="api", facts=NODE)
    pods = {"a": SMALL, "b": SMALL, "c": guaranteed, "d": SMALL}
    play.want(sized({"requests": {"cpu": "600m"}}, uid="u0"))
    for uid, held in pods.items():
        play.want(sized(held, uid=uid, priority=10 if uid == "d" else 0))
    for uid, held in pods.items():
        play.want(sized(more if held is guaranteed else LARGE, 2, uid=uid, priority=10 if uid == "d" else 0))
        play.wall += 1
    assert all(condition(play, uid=uid)["reason"] == "Deferred" for uid in pods)
    order = []
    for generation, cpu in enumerate(("400m", "200m", "0"), start=2):
        before = {uid for uid in pods if condition(play, uid=uid)}
        play.want(sized({"requests": {"cpu": cpu}}, generation, uid="u0"))
        order += sorted(before - {uid for uid in pods if condition(play, uid=uid)})
    assert order == ["d", "c", "a"]


def test_a_deferred_resize_that_is_taken_back_is_pending_no_more() -> None:
    play = crowded()
    play.want(sized(SMALL, 3))
    assert condition(play) == {} and resources(play)["resources"] == SMALL


def test_the_same_amount_in_other_words_is_no_resize() -> None:
    play = Play(source="api").wanting(sized(SMALL))
    play.want(sized({"requests": {"cpu": "0.1", "memory": "67108864"}, "limits": {"cpu": "200m"}}, 2))
    assert condition(play) == {} and events(play) == [] and play.writes == []


def test_a_restart_of_podsync_repeats_no_event_and_keeps_the_decision() -> None:
    play = crowded()
    before = (status(play), events(play))
    pending = restore(play.disk["u1"]).saved.pending_resize
    assert pending is not None and (pending.generation, pending.reason) == (2, "Deferred")
    play.restart()
    assert (status(play), events(play)) == before


@pytest.mark.long
@pytest.mark.parametrize("step", every_step(40))
def test_a_kill_at_any_step_ends_in_the_same(step: int) -> None:
    undisturbed = resized()
    play = Play(source="api", listed=True).wanting(sized(SMALL))
    play.kill_at = play.steps + step
    play.want(sized(LARGE, 2))
    play.later(3)
    assert play.cgroups == undisturbed.cgroups and play.resources == undisturbed.resources
    assert resources(play) == resources(undisturbed) and not condition(play, "PodResizeInProgress")
    assert play.made == [("u1", "c", 0)]


def with_policy(amount: dict[str, str], generation: int, policy: list[dict[str, str]]) -> Pod:
    listed = {"requests": amount, "limits": amount}
    pod = a_pod(containers=[a_container("c", resources=listed, resizePolicy=policy)])
    pod["metadata"]["generation"] = generation
    return pod


@pytest.mark.parametrize("policy", [[], [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]])
@pytest.mark.parametrize("step", every_step(30))
def test_a_resize_that_is_taken_back_after_a_kill_leaves_nothing_of_it(step: int, policy: list[dict[str, str]]) -> None:
    small, large = {"cpu": "100m", "memory": "64Mi"}, {"cpu": "100m" if policy else "200m", "memory": "128Mi"}
    play = Play(source="api", listed=True).wanting(with_policy(small, 1, policy))
    before = dict(play.cgroups), dict(play.resources)
    play.kill_at = play.steps + step
    play.wanted["u1"] = with_policy(large, 2, policy)
    play.handle(PodDesired(uid="u1", source="api", pod=play.wanted["u1"]))
    play.wanted["u1"] = with_policy(small, 3, policy)  # what the process that follows is given
    play.run()
    play.want(play.wanted["u1"])
    play.later(5)
    assert (play.cgroups, play.resources) == before and len(play.made) == 1


def test_a_container_that_is_created_with_the_resources_before_is_resized_once_it_runs() -> None:
    play = Play(source="api", hang={"CreateContainer"}).wanting(sized(SMALL))
    creation = play.calls[-1]
    play.want(sized(LARGE, 2))
    play.happen(play.effect(creation))
    assert play.resources["c002"]["cpu_quota"] == play.cgroups["u1"].cpu_quota == 40_000
    assert resources(play)["resources"] == LARGE and not condition(play, "PodResizeInProgress")
    assert len(events(play, "ResizeCompleted")) == 1


def test_a_pod_that_is_over_has_nothing_pending() -> None:
    play = Play(source="api", facts=NODE).wanting(sized(SMALL, restartPolicy="Never"))
    play.want(sized(HUGE, 2, restartPolicy="Never"))
    play.exit("u1", 0)
    assert status(play)["phase"] == "Succeeded" and condition(play) == {}


def test_a_pod_that_is_not_admitted_yet_takes_the_newest() -> None:
    play = Play(source="api", joins_cluster=True).wanting(sized(SMALL), sized(LARGE, 2))
    assert play.core.tracked["u1"].containers[0]["resources"] == LARGE
    play.happen(NodeChanged(node={"metadata": {"name": "node1"}}))
    assert resources(play)["resources"] == LARGE and events(play) == []


def test_a_resize_that_fails_is_shown_and_tried_again() -> None:
    play = resized(fail={"ResizePod": ("Unknown", "no such cgroup")})
    found = condition(play, "PodResizeInProgress")
    assert (found["reason"], found["message"], found["observedGeneration"]) == ("Error", "no such cgroup", 2)
    assert events(play, "ResizeError")[0].endswith('"generation":2,"error":"no such cgroup"}')
    assert resources(play)["resources"] == SMALL
    play.later(30)
    assert resources(play)["resources"] == LARGE and condition(play, "PodResizeInProgress") == {}
    assert len(events(play, "ResizeError")) == 1


def test_a_resize_that_fails_holds_no_other_container_up() -> None:
    pod = a_pod(containers=[a_container("c", resources=SMALL), a_container("d")])
    play = Play(source="api").wanting(pod)
    play.fail_always["ResizePod"] = ("Unknown", "no such cgroup")
    play.want(a_pod(containers=[a_container("c", resources=LARGE), a_container("d")]))
    play.exit("u1", 1, "d")
    assert sorted(play.running("u1")) == [("c", 0), ("d", 1)]


def limited(memory: str, generation: int = 1) -> Pod:
    amounts = {"cpu": "100m", "memory": memory}
    return sized({"requests": amounts, "limits": amounts}, generation)


def test_memory_is_not_limited_to_less_than_is_in_use() -> None:
    play = Play(source="api").wanting(limited("64Mi"))
    play.usage = {"": 40 << 20, "c002": 38 << 20}
    play.want(limited("32Mi", 2))
    text = (
        "cannot decrease memory limits: [attempting to set pod memory limit (33554432) below current usage (41943040), "
        'attempting to set container "c" memory limit (33554432) below current usage (39845888)]'
    )
    assert condition(play, "PodResizeInProgress")["message"] == text
    assert play.cgroups["u1"].memory_limit == 64 << 20 and play.writes == []
    play.usage = {}
    play.later(30)
    assert play.writes == ["c memory 33554432", "pod memory 33554432"]


def test_memory_that_a_shrink_cannot_free_yet_is_no_room_for_another_pod() -> None:
    def holding(memory: str, generation: int = 1) -> Pod:
        return sized({"requests": {"memory": memory}, "limits": {"memory": memory}}, generation)

    play = Play(source="api", facts=NODE).wanting(holding("900Mi"), sized({"requests": {"memory": "50Mi"}}, uid="u3"))
    play.usage["c002"] = 800 << 20
    play.want(holding("100Mi", 2))
    assert condition(play, "PodResizeInProgress")["reason"] == "Error"
    play.want(sized({"requests": {"memory": "700Mi"}}, uid="u2"))
    assert status(play, "u2")["reason"] == "OutOfmemory"
    play.want(sized({"requests": {"memory": "700Mi"}}, 2, uid="u3"))
    assert condition(play, uid="u3")["reason"] == "Deferred"
    play.usage.clear()
    play.later(15)  # the shrink is tried again, and makes room
    assert condition(play, "PodResizeInProgress") == condition(play, uid="u3") == {}
    play.want(sized({"requests": {"memory": "200Mi"}}, uid="u4"))
    assert status(play, "u4")["phase"] == "Running"


def test_a_container_whose_policy_asks_for_it_is_restarted() -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    play = Play(source="api")
    for generation, held in enumerate((SMALL, LARGE), start=1):
        pod = a_pod(containers=[a_container("c", resources=held, resizePolicy=policy), a_container("d")])
        pod["metadata"]["generation"] = generation
        play.want(pod)
    assert "Normal Killing: Container c resize requires restart" in play.events
    assert sorted(play.running("u1")) == [("c", 1), ("d", 0)]
    assert play.resources["c004"]["cpu_quota"] == 40_000 and play.writes == ["pod shares 307"]
    assert resources(play)["resources"] == LARGE and condition(play, "PodResizeInProgress") == {}
