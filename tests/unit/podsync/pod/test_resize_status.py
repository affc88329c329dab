"""What the status of a pod shows of its own resources during a resize (pods.md 9.2)."""

from tests.unit.podsync.play import Play
from tests.unit.podsync.pod.test_resize import LARGE, SMALL, condition, sized, status


def test_the_pod_shows_the_resources_that_its_cgroup_has_until_the_cgroup_is_written() -> None:
    play = Play(source="api")
    play.want(sized(SMALL))
    play.fail_always["ResizePod"] = ("Unknown", "write cpu.max: invalid argument")
    play.want(sized(LARGE, 2))
    assert play.cgroups["u1"].cpu_quota == 20_000
    assert (status(play)["resources"], status(play)["allocatedResources"]) == (SMALL, LARGE["requests"])
    assert condition(play, "PodResizeInProgress")["reason"] == "Error"
    play.want(sized({**LARGE, "limits": {"cpu": "500m"}}, 3))
    play.start()
    play.run()
    assert status(play)["resources"] == SMALL
    play.fail_always.clear()
    play.later(60)
    assert play.cgroups["u1"].cpu_quota == 50_000
    assert status(play)["resources"] == {**LARGE, "limits": {"cpu": "500m"}}
