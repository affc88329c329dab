"""AppArmor in a machine whose kernel has it: containers with the profile of the runtime, with one of the node, without
one, and with one that the node does not have."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from shared.model.objects import Object
from tests.machine.joined import MachineCluster

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(1800)]

_PROFILE = """\
profile no-marks flags=(attach_disconnected) {
  file,
  signal,
  deny /marks/** w,
}
"""
_PROFILES: dict[str, dict[str, str] | None] = {
    "given": None,  # the runtime's default
    "runtime": {"type": "RuntimeDefault"},
    "local": {"type": "Localhost", "localhostProfile": "no-marks"},
    "free": {"type": "Unconfined"},
}


@pytest_asyncio.fixture(scope="module", loop_scope="package", autouse=True)
async def profiles(cluster: MachineCluster) -> AsyncIterator[None]:
    """The profile of the node; afterwards no pod of this module is left."""
    cluster.machine.write("/etc/apparmor.d/no-marks", _PROFILE)
    cluster.machine.must("apparmor_parser", "--add", "/etc/apparmor.d/no-marks")
    yield
    await cluster.end_pods()


def pod_with(cluster: MachineCluster, name: str, profile: dict[str, str] | None) -> Object:
    pod = cluster.pod(name)
    pod["spec"]["volumes"] = [{"name": "marks", "emptyDir": {}}]
    container = pod["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "marks", "mountPath": "/marks"}]
    if profile is not None:
        container["securityContext"] = {"appArmorProfile": profile}
        # The API server of the tests is older than the field: it keeps only the annotation.
        kind, local = profile["type"], profile.get("localhostProfile")
        value = {"RuntimeDefault": "runtime/default", "Unconfined": "unconfined"}.get(kind, f"localhost/{local}")
        pod["metadata"]["annotations"] = {"container.apparmor.security.beta.kubernetes.io/main": value}
    return pod


async def test_a_container_runs_under_the_profile_that_it_names(cluster: MachineCluster) -> None:
    for name, profile in _PROFILES.items():
        await cluster.create(pod_with(cluster, name, profile))
    await cluster.wait_served(*_PROFILES)

    def of(name: str, *command: str) -> Any:
        return cluster.plane.kubectl("exec", name, "--", *command, check=False)

    shown = {name: of(name, "cat", "/proc/1/attr/current").stdout.strip() for name in _PROFILES}
    default = "cri-containerd.apparmor.d (enforce)"
    free = {"unconfined", "runc (unconfined)"}  # Debian 13 has a profile for runc itself, which confines nothing
    assert shown.pop("free") in free
    assert shown == {"given": default, "runtime": default, "local": "no-marks (enforce)"}
    marked = {name: of(name, "touch", "/marks/one").returncode for name in _PROFILES}
    assert marked == {"given": 0, "runtime": 0, "local": 1, "free": 0}
    assert of("local", "touch", "/tmp-file").returncode == 0


async def test_a_container_whose_profile_the_node_does_not_have_waits_with_the_reason(cluster: MachineCluster) -> None:
    await cluster.create(pod_with(cluster, "late", {"type": "Localhost", "localhostProfile": "late-profile"}))

    def waits(pod: Object) -> bool:
        return bool([one for one in pod["status"].get("containerStatuses", ()) if "CreateContainerError" in str(one)])

    pod = await cluster.wait_pod("late", waits, "to wait for its profile")
    message = "failed to generate apparmor spec opts: apparmor profile not found late-profile"
    [status] = pod["status"]["containerStatuses"]
    assert pod["status"]["phase"] == "Pending"
    assert status["state"]["waiting"]["reason"] == "CreateContainerError"
    assert status["state"]["waiting"]["message"].endswith(message), status
    assert "rpc error" not in status["state"]["waiting"]["message"], status
    event = await cluster.wait_event_of("late", "Failed")
    assert event["message"] == f"Error: {status['state']['waiting']['message']}"
    cluster.machine.write("/etc/apparmor.d/late-profile", _PROFILE.replace("no-marks", "late-profile"))
    cluster.machine.must("apparmor_parser", "--add", "/etc/apparmor.d/late-profile")
    await cluster.wait_ready("late")  # without another edit of the pod
