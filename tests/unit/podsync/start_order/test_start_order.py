"""Many pods want to start at once, as after a boot: the order in which they begin, and who waits for what."""

from typing import Any

import pytest

from services.podsync.core.pod.events import CallFailed, PodDesired, StartPlacesChanged
from services.podsync.core.pod.instructions import RunPodSandbox
from services.podsync.core.pod.step import WAITS_FOR_TURN
from services.podsync.core.start_order.turns import PLACE_SECONDS
from tests.unit.podsync.play import Play, Pod, a_pod, every_step

NODE_CRITICAL = 2_000_001_000


def an_api_pod(uid: str, priority: int = 0, **spec: Any) -> Pod:
    return a_pod(uid, f"pod-{uid}", priority=priority, **spec)


def appear(play: Play, *pods: Pod, source: str = "api") -> None:
    """A source lists the pods at once."""
    for pod in pods:
        play.wanted[pod["metadata"]["uid"]] = pod
        play.handle(PodDesired(uid=pod["metadata"]["uid"], source=source, pod=pod))


def began(play: Play) -> list[str]:
    return [call.uid for call in play.calls if isinstance(call, RunPodSandbox)]


def waiting(play: Play) -> list[str]:
    return [uid for uid, tracked in play.core.tracked.items() if tracked.waits_for == WAITS_FOR_TURN]


def all_run(play: Play) -> bool:
    return all(status.status["phase"] == "Running" for status in play.statuses.values())


def test_pods_begin_in_their_order_whatever_the_order_in_which_they_are_listed() -> None:
    play = Play(start_places=1, source="api")
    network: dict[str, Any] = {"volumes": [{"name": "cni", "hostPath": {"path": "/opt/cni/bin"}}], "hostNetwork": True}
    listed = [an_api_pod("none"), an_api_pod("low", 5), an_api_pod("high", 50), an_api_pod("network", **network)]
    appear(play, *listed, an_api_pod("critical", NODE_CRITICAL))
    appear(play, a_pod("static", "static"), source="file")
    play.run()
    assert began(play) == ["static", "critical", "network", "high", "low", "none"]
    assert all_run(play) and len(play.statuses) == 6


def test_no_more_pods_start_at_once_than_there_are_places() -> None:
    play = Play(start_places=3, source="api", hang={"RunPodSandbox"})
    appear(play, *(an_api_pod(f"u{n}") for n in range(3)))
    play.run()
    assert began(play) == ["u0", "u1", "u2"]  # u0 hangs, and has a place
    assert waiting(play) == []
    play.hang = {"RunPodSandbox"}
    appear(play, *(an_api_pod(f"v{n}") for n in range(3)))
    play.run()
    play.hang = {"RunPodSandbox"}
    appear(play, *(an_api_pod(f"w{n}") for n in range(3)))
    play.run()
    assert began(play)[3:] == ["v0", "v1", "v2", "w0"]  # u0, v0 and w0 hang
    assert waiting(play) == ["w1", "w2"]


def test_a_pod_that_hangs_has_its_place_for_a_short_time_only() -> None:
    play = Play(start_places=1, source="api", hang={"RunPodSandbox"})
    appear(play, an_api_pod("hangs"), an_api_pod("next"))
    play.run()
    play.later(PLACE_SECONDS - 0.1)
    assert began(play) == ["hangs"] and waiting(play) == ["next"]
    play.later(0.2)
    assert began(play) == ["hangs", "next"]
    assert play.statuses["next"].status["phase"] == "Running"


@pytest.mark.long
@pytest.mark.parametrize(
    "trouble",
    [
        {"images": set(), "hang": {"PullImage"}},
        {"fail": {"RunPodSandbox": ("Unknown", "no network")}},
        {"hang": {"CreateContainer"}},
        {"fail": {"CreateContainer": ("Unknown", "no such device")}},
        {"fail": {"StartContainer": ("Unknown", "exec format error")}},
    ],
    ids=[
        "a pull",
        "a sandbox that fails",
        "a slow volume",
        "a container that cannot be created",
        "a container that cannot start",
    ],
)
def test_a_pod_that_waits_for_something_else_gives_its_place_to_the_next(trouble: dict[str, Any]) -> None:
    play = Play(start_places=1, source="api", **trouble)
    appear(play, an_api_pod("first"), an_api_pod("next"))
    play.run()
    assert began(play) == ["first", "next"]
    assert waiting(play) == []


def test_a_pod_whose_volume_is_not_mounted_keeps_no_other_from_its_turn() -> None:
    play = Play(start_places=1, source="api")
    mount = {"containers": [{**a_pod()["spec"]["containers"][0], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}
    appear(play, an_api_pod("storage", 1000, volumes=[{"name": "v", "emptyDir": {}}], **mount), an_api_pod("other"))
    play.run()
    assert began(play) == ["other"]
    assert play.core.tracked["storage"].waits_for == "volumes v"


def test_a_pod_that_is_deleted_while_it_waits_or_starts_leaves_its_place_to_the_others() -> None:
    play = Play(start_places=1, source="api", hang={"RunPodSandbox"})
    appear(play, an_api_pod("starts"), an_api_pod("waits"), an_api_pod("last"))
    play.run()
    play.drop("waits")
    play.drop("starts")
    assert began(play) == ["starts", "last"]


def test_operators_see_who_waits_for_its_turn_and_the_api_server_has_the_same_status_as_without() -> None:
    play = Play(start_places=1, source="api", hang={"RunPodSandbox"})
    appear(play, an_api_pod("first"), an_api_pod("next"))
    play.run()
    shown = {uid: item.waits_for for uid, item in play.statuses.items()}
    assert shown == {"first": "", "next": WAITS_FOR_TURN}
    assert "turn" not in str(play.statuses["next"].status)
    play.later(PLACE_SECONDS)
    assert play.statuses["next"].waits_for == ""


class AlwaysHangs(set[str]):
    """Names of calls that are never answered: the next such call hangs as well."""

    def discard(self, element: object) -> None:
        """Keep the name."""


def test_a_pod_whose_sandbox_failed_comes_after_those_that_have_not_tried() -> None:
    play = Play(start_places=1, source="api", hang=AlwaysHangs({"RunPodSandbox"}))
    appear(play, an_api_pod("fails", 100), *(an_api_pod(f"u{n}") for n in range(8)))
    play.run()
    call = play.calls[-1]
    failed = CallFailed(uid="fails", call=call, completed_at=play.wall, code="Unknown", text="", description="no CNI")
    play.happen(failed)
    play.later(9 * PLACE_SECONDS)  # the pod is tried again after 10 to 15 s, while others wait for their first turn
    assert began(play) == ["fails", *(f"u{n}" for n in range(8)), "fails"]


def test_under_pressure_fewer_pods_start_and_afterwards_more_begin_at_once() -> None:
    play = Play(start_places=1, source="api", hang={"RunPodSandbox"})
    appear(play, *(an_api_pod(f"u{n}") for n in range(3)))
    play.run()
    assert began(play) == ["u0"]
    play.happen(StartPlacesChanged(places=2))
    assert began(play) == ["u0", "u1", "u2"]  # u0 hangs, and the two others have one place after the other


def test_running_pods_need_no_turn_after_a_restart_of_podsync() -> None:
    play = Play(start_places=1, source="api")
    appear(play, *(an_api_pod(f"u{n}") for n in range(4)))
    play.run()
    play.log.clear()
    play.restart()
    assert waiting(play) == [] and all_run(play)
    assert "RunPodSandbox" not in play.log


@pytest.mark.long
@pytest.mark.parametrize("step", every_step(60))
def test_a_kill_at_any_step_keeps_no_pod_from_its_start(step: int) -> None:
    play = Play(start_places=2, source="api", kill_at=step)
    appear(play, *(an_api_pod(f"u{n}", priority=n) for n in range(4)))
    play.run()
    play.later(20.0)
    assert len(play.statuses) == 4 and all_run(play)
    assert len(play.sandboxes) == 4
