"""The health of volumes, which volume publishes, in the status of their pod."""

from pathlib import Path

from bus.messages.volume import MountedVolume, MountedVolumes, VolumeHealth, VolumeState
from services.status.core.pod_status_merge import merged_status
from shared.podspec.defaults import apply_defaults
from tests.service.podsync.stage import on_stage

SLOW = VolumeHealth(status="Degraded", reason="HighLatency", message="40 s")


def mounted(*health: VolumeHealth) -> MountedVolumes:
    volume = MountedVolume(state=VolumeState.MOUNTED, host_path="/v", health=health)
    return MountedVolumes(uid="u1", volumes={"v": volume})


async def test_adverse_conditions_are_in_the_status_of_the_pod_until_there_are_none(tmp_path: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
        "spec": {
            "containers": [
                {"name": "c", "image": "busybox:1", "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            ],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }
    apply_defaults(pod)
    async with on_stage(tmp_path) as stage:
        stage.want(pod, "api")
        stage.mounted.put("u1", mounted(SLOW))
        await stage.until(lambda: stage.status("u1").get("phase") == "Running")
        (shown,) = stage.status("u1")["volumeHealth"]
        condition = {"status": "Degraded", "reason": "HighLatency", "message": "40 s"}
        assert shown.pop("lastTransitionTime") and shown == {"name": "v", "healthConditions": [condition]}
        written = merged_status({"phase": "Running"}, stage.status("u1"), now="2026-01-01T00:00:00Z")
        assert written["volumeHealth"] == stage.status("u1")["volumeHealth"]
        stage.mounted.put("u1", mounted())
        await stage.until(lambda: "volumeHealth" not in stage.status("u1"))
        assert "volumeHealth" not in merged_status(written, stage.status("u1"), now="2026-01-01T00:00:00Z")
