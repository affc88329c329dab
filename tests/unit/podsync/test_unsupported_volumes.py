"""A pod with a volume of a type that is not mounted says so in its condition, also while podsync or volume restarts."""

from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.podsync.core.pod.events import VolumesChanged
from tests.unit.podsync.play import Play, a_pod

ERROR = 'MountVolume.SetUp failed for volume "v" : the volume plugin flocker was removed in Kubernetes 1.25: use csi'
SHOWN = ("False", "VolumePluginNotSupported", f"the pod waits for volume v: {ERROR}")


def a_play() -> Play:
    play, pod = Play(), a_pod(volumes=[{"name": "v", "flocker": {}}])
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    play.want(pod)
    return play


def report(play: Play, error: str = "", *, unsupported: bool = False) -> None:
    volume = MountedVolume(
        state=VolumeState.ERROR if error else VolumeState.MOUNTED, error=error, unsupported=unsupported
    )
    play.happen(VolumesChanged(uid="u1", volumes=MountedVolumes(uid="u1", volumes={"v": volume})))


def condition(play: Play) -> tuple[str, str, str]:
    listed = play.statuses["u1"].status["conditions"]
    found = next(c for c in listed if c["type"] == "PodReadyToStartContainers")
    return found["status"], found.get("reason", ""), found.get("message", "")


def test_the_condition_names_the_volume_and_its_plugin() -> None:
    play = a_play()
    report(play, ERROR, unsupported=True)
    assert condition(play) == SHOWN
    assert play.running("u1") == []


def test_the_condition_stays_while_volume_has_not_published_after_a_restart_of_podsync() -> None:
    play = a_play()
    report(play, ERROR, unsupported=True)
    play.restart()
    assert condition(play) == SHOWN
    report(play)
    assert condition(play) == ("True", "", "")


def test_an_error_that_a_further_attempt_may_end_is_no_condition() -> None:
    play = a_play()
    report(play, "mount failed: exit status 32")
    assert condition(play) == ("False", "", "")
