"""A whole cluster for one test: a real control plane and one real agent that has joined it as a node.

    async with Cluster(tmp_path) as cluster:
        await cluster.create(cluster.pod("web"))
        await cluster.wait_ready("web")

What is asserted comes from the API server; the agent (`cluster.agent`) is only started, hurt and stopped.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shared.kube import paths
from shared.kube.interface import ApiError, ApiStatusError
from shared.model.objects import Object
from tests.support.agents.agent import NODE
from tests.support.agents.conditions import is_ready
from tests.support.agents.world import World, busybox_pod
from tests.support.clusters.control_plane import ControlPlane
from tests.support.clusters.shared_control_plane import control_plane
from tests.support.runtime.containerd import PrivateContainerd
from tests.support.waits.deadline import WAIT_SECONDS
from tests.support.waits.looks import pause_after

# Seconds between two looks for what stays once it is there: a pod that is ready or gone, and a node that starts.
_STABLE_SECONDS, _START_SECONDS = 0.1, 0.2


class Cluster:
    """`plane`: further arguments of ControlPlane; without any it may be one that has served earlier tests.

    `config`: KubeletConfiguration fields; `flags`: of the kubelet; `kubeconfig`: makes the one to join with, not one
    with a client certificate; `world`: how the agent starts."""

    def __init__(
        self,
        directory: Path,
        *,
        containerd: PrivateContainerd | None = None,
        config: Mapping[str, Any] | None = None,
        flags: tuple[str, ...] = (),
        plane: Mapping[str, Any] | None = None,
        kubeconfig: Callable[[ControlPlane], Path] | None = None,
        start: bool = True,
        world: type[World] = World,
    ) -> None:
        self.directory, self._world = directory, world
        self._containerd, self._config, self._flags = containerd, dict(config or {}), flags
        self._plane, self._kubeconfig, self._start = dict(plane or {}), kubeconfig, start
        self._stack = AsyncExitStack()
        self.plane: ControlPlane
        self.agent: World

    async def __aenter__(self) -> Self:
        try:
            (self.directory / "plane").mkdir(exist_ok=True)
            plane = control_plane(self.directory / "plane", **self._plane)
            self.plane = await self._stack.enter_async_context(plane)
            config = {**joined_config(str(self.plane.ca_file)), **self._config}
            make = self._kubeconfig or (lambda plane: plane.kubeconfig_for_node(NODE))
            flags = (f"--kubeconfig={make(self.plane)}", *self._flags)
            world = self._world(containerd=self._containerd, config=config, flags=flags, start=self._start)
            self.agent = await self._stack.enter_async_context(world)
            if self._start:
                await self.wait_node_ready()
        except BaseException as error:
            await self._stack.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    # Objects

    def pod(self, name: str, *command: str, grace: int = 1, **spec: Any) -> Object:
        """Return a busybox pod that is bound to the node, as by the scheduler."""
        return busybox_pod(name, *command, grace=grace, nodeName=NODE, **spec)

    async def create(self, obj: Object) -> Object:
        """Create a pod, Secret, ConfigMap or Service as the administrator."""
        plural = {"Pod": "pods", "Secret": "secrets", "ConfigMap": "configmaps", "Service": "services"}[obj["kind"]]
        space = obj["metadata"].get("namespace", "default")
        return await self.plane.admin.create(f"/api/v1/namespaces/{space}/{plural}", obj)

    async def get(self, path: str) -> Object | None:
        """Return the object; None where there is none."""
        try:
            return await self.plane.admin.get(path)
        except ApiStatusError as error:
            if error.not_found:
                return None
            raise

    async def get_pod(self, name: str, namespace: str = "default") -> Object | None:
        """Return the pod; None where there is none."""
        return await self.get(paths.pod(namespace, name))

    async def items(self, path: str, **query: str) -> list[Object]:
        """Return everything at the path."""
        return list((await self.plane.admin.get(path, query)).get("items") or ())

    async def node(self) -> Object:
        """Return our Node."""
        return await self.plane.admin.get(paths.node(NODE))

    async def delete_pod(self, name: str, grace: int | None = None, namespace: str = "default") -> None:
        """Delete the pod as the administrator; without `grace` its own grace period applies."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        await self.plane.admin.delete(paths.pod(namespace, name), options)

    async def events_of(self, name: str, namespace: str = "default") -> list[Object]:
        """Return the Events about the pod, the oldest first."""
        found = await self.items(paths.events(namespace), fieldSelector=f"involvedObject.name={name}")
        return sorted(found, key=lambda event: str(event.get("firstTimestamp") or ""))

    # Waiting

    async def wait_event_of(self, name: str, reason: str) -> Object:
        """Wait for an Event of this reason about the pod; return the first one. A status may be written before it."""

        async def found() -> Object | None:
            return next((event for event in await self.events_of(name) if event["reason"] == reason), None)

        event: Object = await self.wait_for(found, f"event {reason} of {name}")
        return event

    async def wait_ready(self, *names: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the API server shows all these pods as Ready."""

        async def ready() -> bool:
            by_name = {pod["metadata"]["name"]: pod for pod in await self.items(paths.pods("default"))}
            return all(name in by_name and is_ready(by_name[name]) for name in names)

        await self.wait_for(ready, f"pods {', '.join(names)} to be ready", seconds, every=_STABLE_SECONDS)

    async def wait_served(self, *names: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the API server and the node's own port show all these pods as Ready: exec, logs and port-forward
        are answered by a process that learns of containers later than the one that writes their status."""
        await self.wait_ready(*names, seconds=seconds)

        async def served() -> bool:
            return {pod["metadata"]["name"] for pod in await self.agent.pods() if is_ready(pod)} >= set(names)

        what = f"pods {', '.join(names)} to be ready on the node's port"
        await self.wait_for(served, what, seconds, every=_STABLE_SECONDS)

    async def wait_gone(self, *names: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the API server has none of these pods."""

        async def gone() -> bool:
            left = {pod["metadata"]["name"] for pod in await self.items(paths.pods("default"))}
            return not left & set(names)

        await self.wait_for(gone, f"pods {', '.join(names)} to be gone", seconds, every=_STABLE_SECONDS)

    async def wait_pod(
        self, name: str, holds: Callable[[Object], object], what: str, seconds: float = WAIT_SECONDS
    ) -> Object:
        """Wait until the pod is as wanted; return it."""

        async def found() -> Object | None:
            pod = await self.get_pod(name)
            return pod if pod is not None and holds(pod) else None

        pod: Object = await self.wait_for(found, f"pod {name} {what}", seconds)
        return pod

    async def wait_node_ready(self, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the API server shows the node as Ready."""

        async def ready() -> bool:
            node = await self.get(paths.node(NODE))
            return node is not None and is_ready(node)

        await self.wait_for(ready, "the node to be ready", seconds, every=_START_SECONDS)

    async def wait_for(
        self, look: Callable[[], Any], what: str, seconds: float = WAIT_SECONDS, *, every: float = 0.05
    ) -> Any:
        """Return the first truthy result of `look`; while the API server is away, nothing counts as seen.

        `every`: seconds between two looks, at least. Each costs the API server and this process some milliseconds of a
        CPU."""
        began = time.monotonic()
        while True:
            try:
                found = await look()
            except ApiError:
                found = None
            if found:
                return found
            waited = time.monotonic() - began
            if waited > seconds:
                raise AssertionError(f"waited {seconds} s for {what}")
            await asyncio.sleep(pause_after(waited, every))


def joined_config(ca_file: str) -> Object:
    """Return the KubeletConfiguration fields of a node that has joined: it admits whom the API server admits."""
    return {
        "address": "0.0.0.0",
        "authentication": {
            "x509": {"clientCAFile": ca_file},
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
        },
        "authorization": {"mode": "Webhook"},
    }
