"""A pod is rejected when volume reports that the node takes no further volume of it (volumes.md 2.2)."""

from typing import Any

from bus.messages.podsync import PodState
from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.podsync.core.pod.events import VolumesChanged
from tests.unit.podsync.play import Play, a_pod

TEXT = "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[v]"


def a_pod_with_a_volume() -> dict[str, Any]:
    pod = a_pod(volumes=[{"name": "v", "emptyDir": {}}])
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    return pod


def volumes(state: VolumeState, attach_limit: str = "") -> VolumesChanged:
    mounted = {"v": MountedVolume(state=state, host_path="/v")}
    return VolumesChanged(uid="u1", volumes=MountedVolumes(uid="u1", volumes=mounted, attach_limit=attach_limit))


def test_the_pod_fails_with_the_kubelets_reason_and_one_event() -> None:
    play = Play().wanting(a_pod_with_a_volume())
    play.handle(volumes(VolumeState.PENDING))
    assert play.core.tracked["u1"].saved.state is PodState.SYNC
    play.happen(volumes(VolumeState.PENDING, TEXT))
    status = play.statuses["u1"].status
    assert (status["phase"], status["reason"]) == ("Failed", "VolumeAttachmentLimitExceeded")
    assert status["message"] == f"Pod was rejected: {TEXT}"
    assert play.made == []
    assert [event for event in play.events if "Limit" in event] == [f"Warning VolumeAttachmentLimitExceeded: {TEXT}"]


def test_a_restart_of_podsync_keeps_the_rejection() -> None:
    play = Play().wanting(a_pod_with_a_volume())
    play.happen(volumes(VolumeState.PENDING, TEXT))
    play.start()
    play.happen(volumes(VolumeState.MOUNTED))
    assert play.statuses["u1"].status["reason"] == "VolumeAttachmentLimitExceeded"
    assert play.made == []
