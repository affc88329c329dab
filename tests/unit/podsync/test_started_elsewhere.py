"""A pod that has finished here runs again, as another agent of the node started it while this one was stopped."""

from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.podsync.core.pod.events import PodEvicted, SourcesFreshness
from services.podsync.core.pod.instructions import Call
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, Sandbox, SandboxState
from shared.podspec.hashing import container_hash
from tests.unit.podsync.play import Play, a_container, a_pod, every_step


class Doubled(Play):
    """Notes whether two pods run at one time."""

    doubled = False

    def _call(self, call: Call) -> None:
        super()._call(call)
        self.doubled = self.doubled or sum(bool(self.running(uid)) for uid in self.containers) > 1


def start_elsewhere(play: Play, uid: str, *, container: bool = True, source: str = "") -> None:
    """Another agent starts the pod in a sandbox of its own; ours has stopped. `source`: of a static pod."""
    play.wall += 5
    ready = Sandbox(id=f"s-{uid}", attempt=0, state=SandboxState.READY, created_at=1, ips=("10.0.0.7",))
    play.sandboxes[uid] = [replace(ready, static_source=source)]
    running = Container(
        id=f"x-{uid}",
        name="c",
        attempt=0,
        sandbox_id=f"s-{uid}",
        state=ContainerState.RUNNING,
        created_at=1,
        started_at=int(play.wall * 1e9),
        spec_hash=container_hash(a_container("c")),
        image="busybox:1",
    )
    play.containers[uid] = [running] if container else []


def end_elsewhere(play: Play, uid: str) -> None:
    play.sandboxes[uid], play.containers[uid] = [], []


def finished_unknown_pod(**given: Any) -> Doubled:
    """The pod `old` of another agent was ended as no source lists it; `new` is the static pod of the same name."""
    play = Doubled(**given)
    play.handle(SourcesFreshness(complete=False, stale=False))
    start_elsewhere(play, "old")
    play.observe("old")
    play.handle(SourcesFreshness(complete=True, stale=False))
    play.want(a_pod("new"))
    play.run()
    assert play.disk["old"]["state"] == "finished" and play.running("new") == [("c", 0)]
    return play


def test_a_static_pod_of_another_agent_is_ended_before_ours_of_that_name_starts() -> None:
    play = finished_unknown_pod()
    start_elsewhere(play, "old")
    end_elsewhere(play, "new")
    play.restart()
    assert play.running("old") == [] and play.running("new") == [("c", 1)]
    assert not play.doubled
    play.later(61)
    assert "old" not in play.disk and play.sandboxes["old"] == [] and play.containers["old"] == []


def test_ours_does_not_wait_for_the_sources_to_be_complete() -> None:
    play = finished_unknown_pod()
    start_elsewhere(play, "old")
    end_elsewhere(play, "new")
    play.sources_complete = False  # the API server is away, which may be the very pod
    play.restart()
    assert play.running("old") == [] and play.running("new") == [("c", 1)]
    assert not play.doubled


@pytest.mark.parametrize("order", ["source first", "runtime first", "list complete"])
def test_the_static_pod_of_another_agent_ends_before_ours_starts_while_the_api_server_is_away(order: str) -> None:
    play = Doubled(sources_complete=False, listed=order == "list complete")
    start_elsewhere(play, "old", source="file")
    play.wanted = {} if order == "runtime first" else {"new": a_pod("new")}
    play.start()
    if order == "runtime first":
        play.observe("old")
        play.want(a_pod("new"))
    play.run()
    assert play.running("old") == [] and play.running("new") == [("c", 0)]
    assert not play.doubled


@pytest.mark.long
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("step", every_step(40))
def test_a_kill_at_any_step_of_that_doubles_nothing(step: int, listed: bool) -> None:
    play = Doubled(sources_complete=False, listed=listed)
    start_elsewhere(play, "old", source="file")
    play.wanted = {"new": a_pod("new")}
    play.steps, play.kill_at = 0, step
    play.restart()
    play.later(2)
    assert play.running("old") == [] and play.running("new") == [("c", 0)]
    assert not play.doubled


@pytest.mark.parametrize("source", ["", "http"])
def test_a_pod_of_another_source_is_not_ended_before_every_source_is_complete(source: str) -> None:
    """A pod of the API server, or of a URL that is not read yet, is not replaced by a file of the same name."""
    play = Doubled(sources_complete=False)
    start_elsewhere(play, "old", source=source)
    play.want(a_pod("new"))
    play.observe("old")
    play.later(60)
    assert play.running("old") == [("c", 0)]
    play.happen(SourcesFreshness(complete=True, stale=False, listed=frozenset({"new"})))
    assert play.running("old") == []


@pytest.mark.long
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("step", every_step(54))
def test_a_kill_at_any_step_of_it_doubles_nothing(step: int, listed: bool) -> None:
    play = finished_unknown_pod(listed=listed)
    start_elsewhere(play, "old")
    end_elsewhere(play, "new")
    play.steps, play.kill_at = 0, step
    play.restart()
    play.later(2)
    assert play.running("old") == [] and play.running("new") == [("c", 1)]
    assert not play.doubled
    play.later(70)
    assert "old" not in play.disk and play.sandboxes["old"] == [] and play.containers["old"] == []


def test_a_sandbox_alone_is_ended_as_well() -> None:
    play = finished_unknown_pod()
    start_elsewhere(play, "old", container=False)
    play.restart()
    assert play.sandboxes["old"][0].state is SandboxState.NOTREADY


def test_a_pod_that_no_source_lists_is_not_ended_before_every_source_is_complete() -> None:
    play = Play().wanting(a_pod())
    play.drop("u1")
    start_elsewhere(play, "u1")
    play.sources_complete = False
    play.stops.clear()
    play.published.clear()
    play.restart()
    play.later(200)
    assert play.running("u1") == [("c", 0)] and play.published == {}
    play.happen(SourcesFreshness(complete=True, stale=False))
    assert play.running("u1") == [] and play.stops == [30], "with the grace period of its spec"
    play.later(70)
    assert play.disk == {} and play.sandboxes["u1"] == []


@pytest.mark.long
@pytest.mark.parametrize("step", [-1, *range(1, 11)])
@pytest.mark.parametrize("listed_early", [False, True])
def test_a_static_pod_that_is_listed_again_keeps_the_containers_of_the_other_agent(
    step: int, listed_early: bool
) -> None:
    play = Play().wanting(a_pod())
    play.drop("u1")
    assert play.disk["u1"]["state"] == "finished"
    start_elsewhere(play, "u1")
    play.stops.clear()
    if listed_early:
        play.wanted["u1"] = a_pod()
    play.sources_complete = listed_early
    play.published.clear()
    play.steps, play.kill_at = 0, step
    play.restart()
    play.want(a_pod())
    play.later(70)
    assert [c.id for c in play.containers["u1"]] == ["x-u1"] and play.running("u1") == [("c", 0)]
    assert play.stops == [] and "RemovePodLogs" not in play.log
    assert play.statuses["u1"].status["phase"] == "Running"
    assert play.published["u1"].admitted.state is PodState.SYNC


@pytest.mark.parametrize("listed_early", [False, True])
def test_a_static_pod_that_ran_to_its_end_and_is_still_listed_runs_on_under_this_agent(listed_early: bool) -> None:
    play = Play()
    pod = a_pod(restartPolicy="Never")
    play.want(pod)
    play.exit("u1", 0)
    assert play.published["u1"].admitted.state is PodState.FINISHED
    shown = play.statuses["u1"].status
    start_elsewhere(play, "u1")
    play.stops.clear()
    play.published.clear()
    play.wanted = {"u1": pod} if listed_early else {}
    play.sources_complete = listed_early
    play.restart()
    if not listed_early:
        assert play.published == {} and play.statuses["u1"].status == shown
    play.want(pod)
    assert play.running("u1") == [("c", 0)] and play.stops == []
    assert play.statuses["u1"].status["phase"] == "Running"


def test_a_pod_of_the_api_server_that_has_failed_is_ended_again_and_stays_failed() -> None:
    play = Play(source="api").wanting(a_pod())
    play.happen(PodEvicted(uid="u1", message="short of memory", grace_seconds=3))
    assert play.statuses["u1"].status["phase"] == "Failed"
    shown = play.statuses["u1"].status
    start_elsewhere(play, "u1")
    play.hang = {"KillPod"}
    play.restart()
    assert play.statuses["u1"].status == shown, "while it ends again"
    play.hang = set()
    play.restart()
    assert play.running("u1") == []
    assert (play.statuses["u1"].status["phase"], play.statuses["u1"].status["reason"]) == ("Failed", "Evicted")


def test_a_rejected_pod_that_runs_is_ended() -> None:
    play = Play(source="api").wanting(a_pod(os={"name": "windows"}))
    assert play.published["u1"].admitted.rejected
    start_elsewhere(play, "u1")
    play.restart()
    play.observe("u1")
    assert play.running("u1") == []
    assert play.statuses["u1"].status["reason"] == "PodOSNotSupported"


def test_finished_is_not_published_before_the_pod_was_listed_in_the_runtime() -> None:
    """Its volumes, which another agent may use, would be unmounted."""
    play = Play().wanting(a_pod())
    play.drop("u1")
    play.published.clear()
    play.hang = {"LookAtPod"}
    play.restart()
    assert "u1" not in play.published
    play.observe("u1")
    assert play.published["u1"].volumes.finished
