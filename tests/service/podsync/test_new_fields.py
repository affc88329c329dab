"""A pod with all new fields of Kubernetes 1.37 at once, with their feature gates on and off: what runs, and what is
said (docs/versions.md). The files of its volumes are tested with the volumes.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bus.messages.pleg import NodeObserved
from bus.messages.podsync import PodProbes
from bus.messages.streams import PODS_PROBES
from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.pleg.core.probe_spec import PROBE_GATES, probes_of
from shared.config.gate_releases import gates_of
from shared.model.frozen_copy import replace
from shared.podspec.gated import GATED_FIELDS
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.stage import Stage, cleared
from tests.service.podsync.test_podsync_service import a_pod

REFUSED = "Pod requires node features that are not available: VolumeBindMountOptions"
WITHOUT = (
    "spec.volumes[0].emptyDir.mode, spec.volumes[1].downwardAPI.defaultUser, "
    "spec.volumes[1].downwardAPI.items[0].user, spec.containers[0].lifecycle.stopSignal"
)


def every_new_field(*, options: bool = True) -> dict[str, Any]:
    """A pod with each field of the table that a pod runs without; `options`: with those of its mount as well."""
    files = {"defaultUser": 7, "items": [{"path": "n", "user": 8, "fieldRef": {"fieldPath": "metadata.name"}}]}
    volumes = [{"name": "v", "emptyDir": {"mode": 0o1770}}, {"name": "d", "downwardAPI": files}]
    pod = a_pod(volumes=volumes, os={"name": "linux"})
    pod["spec"]["containers"][0] |= {
        "volumeMounts": [{"name": "v", "mountPath": "/v"} | ({"bindMountOptions": ["noexec"]} if options else {})],
        "livenessProbe": {"httpGet": {"port": 80, "protocol": "HTTP2"}},
        "readinessProbe": {"grpc": {"port": 1, "mode": "TLS"}},
        "lifecycle": {"stopSignal": "SIGUSR1"},
    }
    return pod


class Ran:
    """What became of the pod: status, warnings, the container as the runtime got it, its probes as pleg takes them."""

    def __init__(self, stage: Stage, uid: str, probed: PodProbes | None) -> None:
        self.status = stage.status(uid)
        events = stage.events.state.values()
        self.said = [(event.reason, event.message) for event in events if event.type == "Warning"]
        self.made = [call["config"] for call in stage.runtime.requests("CreateContainer")]
        gates = frozenset(gate for gate in PROBE_GATES if stage.config.feature_gates[gate])
        spec = {"spec": probed.spec} if probed else {}
        handlers = [probe.handler for probe in probes_of(spec, gates)]
        self.probed = {way for way in ("http2", "tls") if any(getattr(handler, way, False) for handler in handlers)}

    @property
    def mount_options(self) -> list[str]:
        """The options of the mount of the volume."""
        return next(
            mount.get("mount_options", []) for mount in self.made[0]["mounts"] if mount["container_path"] == "/v"
        )


@asynccontextmanager
async def ran(directory: Path, release: str, pod: dict[str, Any], *, on: bool) -> AsyncIterator[Ran]:
    """The pod on a node of this release, with the gates of all new fields on, or as the release has them."""
    gates = {name: gate.default for name, gate in gates_of(release).items()}
    gates |= {field.gate: on for field in GATED_FIELDS if field.gate}
    stage = Stage(directory, FakeRuntime(images=["busybox:1"]), emulated_version=release, feature_gates=gates)
    probed = stage.buses["server"].follow(PODS_PROBES)
    async with cleared(stage):
        ready = NodeObserved(observed_at=2.0, runtime_reachable=True, runtime_ready=True, network_ready=True)
        stage.node.put("node", replace(ready, mount_options=True))
        await stage.network.settle()
        uid = stage.want(pod)
        mounted = MountedVolume(state=VolumeState.MOUNTED, host_path=str(directory))
        stage.mounted.put(uid, MountedVolumes(uid=uid, volumes={"v": mounted, "d": mounted}))
        await stage.until(lambda: stage.status(uid).get("phase") in ("Running", "Failed"))
        yield Ran(stage, uid, probed.state.get(uid))


@pytest.mark.long
async def test_with_all_gates_on_the_pod_runs_with_each_field_and_nothing_is_said(tmp_path: Path) -> None:
    async with ran(tmp_path, "1.37", every_new_field(), on=True) as pod:
        assert (pod.status["phase"], pod.said, pod.mount_options) == ("Running", [], ["noexec"])
        assert pod.made[0]["stop_signal"] == "SIGUSR1"
        assert pod.probed == {"http2", "tls"}


@pytest.mark.long
async def test_with_all_gates_off_1_37_rejects_options_of_mounts_and_runs_the_pod_without_the_rest(
    tmp_path: Path,
) -> None:
    async with ran(tmp_path / "options", "1.37", every_new_field(), on=False) as pod:
        assert (pod.status["phase"], pod.status["reason"]) == ("Failed", "PodFeatureUnsupported")
        assert (pod.made, pod.said) == ([], [("PodFeatureUnsupported", REFUSED)])
    async with ran(tmp_path / "rest", "1.37", every_new_field(options=False), on=False) as pod:
        assert pod.status["phase"] == "Running"
        named = f"{WITHOUT}, spec.containers[0].livenessProbe.httpGet.protocol and 1 more"
        assert pod.said == [("FeatureGateDisabled", f"The pod runs without {named}: their feature gates are off")]
        assert not pod.made[0].get("stop_signal")
        assert pod.probed == set()


async def test_1_36_knows_no_options_of_mounts_and_runs_the_pod_without_any_of_the_fields(tmp_path: Path) -> None:
    async with ran(tmp_path, "1.36", every_new_field(), on=False) as pod:
        assert (pod.status["phase"], pod.mount_options) == ("Running", [])
        named = f"spec.containers[0].volumeMounts[0].bindMountOptions, {WITHOUT} and 2 more"
        assert pod.said == [("FeatureGateDisabled", f"The pod runs without {named}: their feature gates are off")]
