"""What the status of a pod shows of its own resources during a resize (pods.md 9.2)."""

from typing import Any

import pytest

from services.podsync.core.pod.instructions import LookAtPod
from shared.model.frozen_copy import replace
from tests.unit.podsync.play import Play, Pod, every_step
from tests.unit.podsync.pod.test_resize import LARGE, SMALL, condition, sized, status

OWN = {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}
GROWN = {"requests": {"cpu": "700m", "memory": "256Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
HALFWAY = {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}


def test_the_pod_shows_the_resources_that_its_cgroup_has_until_the_cgroup_is_written() -> None:
    play = Play(source="api").wanting(sized(SMALL))
    play.fail_always["ResizePod"] = ("Unknown", "write cpu.max: invalid argument")
    play.want(sized(LARGE, 2))
    assert play.cgroups["u1"].cpu_quota == 20_000
    assert (status(play)["resources"], status(play)["allocatedResources"]) == (SMALL, LARGE["requests"])
    assert condition(play, "PodResizeInProgress")["reason"] == "Error"
    play.want(sized({**LARGE, "limits": {"cpu": "500m"}}, 3))
    play.restart()
    assert status(play)["resources"] == SMALL
    play.fail_always.clear()
    play.later(60)
    assert play.cgroups["u1"].cpu_quota == 50_000
    assert status(play)["resources"] == {**LARGE, "limits": {"cpu": "500m"}}


def of_its_own(resources: dict[str, Any], generation: int = 1) -> Pod:
    """A pod with resources of its own."""
    pod = sized(SMALL, generation)
    pod["spec"]["resources"] = resources
    return pod


def half_resized() -> Play:
    """Memory of the pod's cgroup is written, and then the kernel refuses its CPU."""
    return Play(source="api", refused="pod cpu").wanting(of_its_own(OWN), of_its_own(GROWN, 2))


def test_a_resize_that_failed_halfway_shows_what_was_written() -> None:
    play = half_resized()
    assert (play.cgroups["u1"].memory_limit, play.cgroups["u1"].cpu_quota) == (1 << 30, 100_000)
    assert (status(play)["resources"], status(play)["allocatedResources"]) == (HALFWAY, GROWN["requests"])
    assert condition(play, "PodResizeInProgress")["reason"] == "Error"
    play.refused = ""
    play.later(60)
    assert status(play)["resources"] == GROWN


def test_the_next_podsync_shows_it_until_it_has_read_the_cgroup_itself() -> None:
    play = half_resized()
    play.cgroups["u1"] = replace(play.cgroups["u1"], cpu_quota=150_000)
    play.hang = {"LookAtPod"}
    play.start()
    play.observe("u1")  # what pleg reports shows nothing of cgroups
    assert status(play)["resources"] == HALFWAY


@pytest.mark.long
@pytest.mark.parametrize("step", every_step(40))
def test_a_podsync_that_is_killed_during_a_resize_shows_what_the_cgroup_has(step: int) -> None:
    play = Play(source="api", listed=True).wanting(of_its_own(OWN))
    play.kill_at = play.steps + step
    play.want(of_its_own(GROWN, 2))
    play.later(1)
    assert (play.cgroups["u1"].cpu_quota, status(play)["resources"]) == (200_000, GROWN)


def test_what_another_program_wrote_to_the_cgroup_is_shown_at_the_next_look() -> None:
    play = Play(source="api").wanting(of_its_own(OWN))
    play.cgroups["u1"] = replace(play.cgroups["u1"], cpu_quota=150_000, memory_limit=None)
    play.later(90)
    assert status(play)["resources"] == {**OWN, "limits": {"cpu": "1500m"}}


def test_the_cgroup_of_a_pod_without_resources_of_its_own_is_read_for_a_resize_alone() -> None:
    play = Play(source="api").wanting(sized(SMALL))
    play.later(600)
    looks = [call for call in play.calls if isinstance(call, LookAtPod)]
    assert len(looks) > 5 and not any(call.resources for call in looks)
    play.refused = "pod cpu"
    play.want(sized(LARGE, 2))
    assert [call for call in play.calls if isinstance(call, LookAtPod)][-1].resources
