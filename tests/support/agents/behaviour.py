"""One real node for many tests of what single pods do: a control plane, an agent, containerd, and pods side by side.

A module puts all its pods up at once and its tests look at one each, so that what they wait for passes at the same
time. Static pods carry fields that the old API server of the tests would drop; their whole status is on the read-only
port. Names are unique over all modules, for the node is shared.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from shared.model.objects import Object
from shared.model.runtime import Container, ContainerState
from tests.support.agents.agent import NODE
from tests.support.clusters.cluster import Cluster
from tests.support.clusters.shared_control_plane import is_double
from tests.support.waits.deadline import WAIT_SECONDS
from tools.oci_image import BUSYBOX_IMAGE

CONFIG = {"clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local", "featureGates": {"PodsAPI": True}}
PLANE = {"feature_gates": {"BoundServiceAccountTokenVolume": True, "EphemeralContainers": True}}


class Node(Cluster):
    """The cluster with one node of `async with Node(directory) as node:`, and short methods for what tests of pods
    do."""

    def __init__(self, directory: Path, **further: Any) -> None:
        # The double has neither gate: of the tests of this node, those that need one do not run with it.
        super().__init__(directory, **{"config": CONFIG, "plane": {} if is_double() else PLANE, **further})

    def put(self, pods: Mapping[str, Object]) -> None:
        """Write the manifests of these static pods: manifest name -> pod."""
        for name, pod in pods.items():
            self.agent.put_manifest(name, pod)

    async def take_away(self, names: Iterable[str]) -> None:
        """Remove the manifests and wait until the runtime runs nothing of them any more."""
        names = list(names)
        for name in names:
            self.agent.remove_manifest(name)
        for name in names:
            await self.agent.wait_gone(name)

    async def wait_static(
        self, name: str, holds: Callable[[Object], object], what: str, seconds: float = WAIT_SECONDS
    ) -> Object:
        """Wait until the static pod is as wanted; return it as the read-only port shows it."""

        async def found() -> Object | None:
            pod = await self.agent.pod(name)
            return pod if pod is not None and holds(pod) else None

        try:
            pod: Object = await self.agent.wait_for(found, f"pod {name} {what}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {(await self.agent.pod(name) or {}).get('status')}") from None
        return pod

    async def wait_phase(self, name: str, phase: str, seconds: float = WAIT_SECONDS) -> Object:
        """Wait until the static pod's status has this phase."""
        return await self.wait_static(name, lambda pod: pod["status"].get("phase") == phase, f"to be {phase}", seconds)

    async def instances(self, name: str, container: str) -> list[Container]:
        """Return what the runtime has of one container of the static pod, the newest instance first."""
        pod = await self.agent.runtime_pod(name)
        return [c for c in (pod.containers if pod else ()) if c.name == container]

    async def inside(self, name: str, container: str, *command: str) -> str:
        """Return what a command prints inside the running container of the static pod. Raises AssertionError where it
        fails."""
        running = [c for c in await self.instances(name, container) if c.state is ContainerState.RUNNING]
        assert running, f"container {container} of {name} does not run"
        result = await self.agent.runtime.exec_sync(running[0].id, command, 60)
        assert result.exit_code == 0, (command, result)
        return result.stdout.decode(errors="replace")

    async def log(self, name: str, container: str, attempt: int = 0) -> list[str]:
        """Return the lines that the container wrote in this attempt, without the runtime's prefix; [] while there is no
        file."""
        pods = self.agent.home.log_dir / "pods"
        files = list(pods.glob(f"default_{name}-{NODE}_*/{container}/{attempt}.log"))
        lines = files[0].read_text(errors="replace").splitlines() if files else []
        return [line.split(" ", 3)[3] for line in lines if line.count(" ") >= 3]

    async def wait_log(self, name: str, container: str) -> list[str]:
        """Wait until the container has written lines, and return them as `log` does."""

        async def written() -> list[str]:
            return await self.log(name, container)

        lines: list[str] = await self.agent.wait_for(written, f"a line of {container} of {name}")
        return lines

    async def events(self, name: str) -> list[tuple[str, str, str]]:
        """Return (reason, message, fieldPath) of the Events about the static pod, each as often as it was counted."""
        events = await self.events_of(f"{name}-{NODE}")
        return [(e["reason"], e["message"], e["involvedObject"].get("fieldPath", "")) for e in events]

    async def wait_event(
        self, name: str, reason: str, text: str = "", seconds: float = WAIT_SECONDS
    ) -> tuple[str, str, str]:
        """Wait for an Event of this reason whose message contains the text."""

        async def found() -> tuple[str, str, str] | None:
            events = await self.events(name)
            return next((event for event in events if event[0] == reason and text in event[1]), None)

        event: tuple[str, str, str] = await self.wait_for(found, f"event {reason} {text!r} of {name}", seconds)
        return event


def container(name: str, script: str = "exec sleep 1000000", **fields: Any) -> Object:
    """Return a busybox container that runs a shell script."""
    own = {"name": name, "image": BUSYBOX_IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script]}
    return own | fields


def pod_of(name: str, *containers: Object, grace: int = 1, **spec: Any) -> Object:
    """Return a pod with these containers; `spec` adds to its spec."""
    body = {"terminationGracePeriodSeconds": grace, "containers": list(containers), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": body}


def status_of(pod: Object, container_name: str) -> Object:
    """Return the status of one container of any kind; {} while there is none."""
    status = pod.get("status") or {}
    lists = (
        status.get(key) or () for key in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    )
    return next((s for statuses in lists for s in statuses if s["name"] == container_name), {})
