"""Ephemeral containers in the core: added to a running pod, started once, never restarted (pods.md 5.3, F.18)."""

from typing import Any

import pytest

from services.podsync.core.pod.instructions import CreateContainer
from tests.unit.podsync.play import Play, Pod, a_container, a_pod, every_step


def with_debug(*containers: Pod, **spec: Any) -> Pod:
    return a_pod(ephemeralContainers=list(containers or [a_container("debug")]), **spec)


def made(play: Play) -> list[str]:
    return [name for _, name, _ in play.made]


def test_one_added_to_a_pod_that_runs_is_started() -> None:
    play = Play(source="api").wanting(a_pod(), with_debug())
    assert sorted(play.running("u1")) == [("c", 0), ("debug", 0)]
    assert play.log.count("PreparePod") == 2, "its log directory is made"


def test_it_is_started_once_and_never_again() -> None:
    play = Play(source="api").wanting(a_pod(), with_debug())
    play.exit("u1", 1, "debug")
    play.later(700)
    play.restart()
    assert made(play) == ["c", "debug"]


def test_not_even_when_the_runtime_has_lost_it() -> None:
    play = Play(source="api").wanting(with_debug())
    play.containers["u1"] = [c for c in play.containers["u1"] if c.name != "debug"]
    play.observe("u1")
    play.restart()
    assert made(play) == ["debug", "c"]


def test_it_starts_beside_the_init_containers() -> None:
    play = Play(source="api")
    init = [a_container("i")]
    play.want(a_pod(initContainers=init))
    play.want(with_debug(initContainers=init))
    assert sorted(play.running("u1")) == [("debug", 0), ("i", 0)]


def test_it_gets_the_process_namespace_of_its_target() -> None:
    play = Play(source="api").wanting(a_pod(), with_debug(a_container("debug", targetContainerName="c")))
    created = [call for call in play.calls if isinstance(call, CreateContainer)]
    target = next(c.id for c in play.containers["u1"] if c.name == "c")
    assert [call.target_id for call in created] == ["", target]


def test_a_missing_target_is_an_error_of_the_call() -> None:
    play = Play(source="api", fail={"CreateContainer": ("", "unable to find target container nope")})
    play.want(with_debug(a_container("debug", targetContainerName="nope")))
    created = [call for call in play.calls if isinstance(call, CreateContainer)]
    assert (created[0].container, created[0].target_id) == ("debug", "")
    assert play.running("u1") == [("c", 0)]


def test_its_image_waits_like_any_other_and_holds_nothing_back() -> None:
    play = Play(source="api", fail_always={"PullImage": ("NotFound", "no such image")})
    play.want(with_debug(a_container("debug", image="nope:1")))
    assert play.running("u1") == [("c", 0)]
    assert play.reason("debug")[0] == "ErrImagePull"
    play.later(6)
    assert play.reason("debug")[0] == "ImagePullBackOff"
    play.fail_always.clear()
    play.later(6)
    assert sorted(play.running("u1")) == [("c", 0), ("debug", 0)]


def test_it_keeps_no_pod_alive() -> None:
    play = Play(source="api").wanting(with_debug(restartPolicy="Never"))
    play.exit("u1", 0)
    assert play.running("u1") == [] and play.statuses["u1"].status["phase"] == "Succeeded"


def test_a_new_sandbox_does_not_start_it_again() -> None:
    play = Play(source="api").wanting(with_debug())
    play.sandboxes["u1"].clear()
    play.exit("u1", 137)
    play.later(15)
    assert made(play).count("debug") == 1 and ("c", 1) in play.running("u1")


@pytest.mark.long
@pytest.mark.parametrize("only_urgent", [False, True])
@pytest.mark.parametrize("step", every_step(39))
def test_a_kill_at_any_step_starts_it_once(step: int, only_urgent: bool) -> None:
    play = Play(source="api", only_urgent=only_urgent).wanting(a_pod())
    play.kill_at, play.steps = step, 0
    play.want(with_debug())
    play.later(2)
    play.exit("u1", 0, "debug")
    play.later(20)
    assert made(play) == ["c", "debug"]
    assert play.running("u1") == [("c", 0)]
