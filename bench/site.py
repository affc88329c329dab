"""Sets up what all measurements share, one control plane, one containerd and one watch, and a fresh node for each
agent.

Makes and removes pods and knows how to wait for them; knows no figure.
"""

import asyncio
import itertools
import tempfile
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Self

from bench.agents import GO, Agent, Bulkhead, GoKubelet
from bench.errors import BenchError
from bench.watch import Watch, gone, ready
from shared.cri.client import CriRuntime
from shared.kube import paths
from shared.kube.interface import ApiStatusError
from shared.model.objects import Object
from tests.support.agents.world import busybox_pod
from tests.support.clusters.control_plane import ControlPlane
from tests.support.installed.debian_containerd import INSTALLED, fetch_programs
from tests.support.runtime.containerd import PrivateContainerd
from tools.clean import remove_pods

PROGRAMS = fetch_programs(INSTALLED)  # the Go kubelet speaks CRI v1alpha2, which containerd 2 does not have
MAX_POD_SECONDS = 180.0  # for one pod; the slower agent needs some
AT_ONCE = ("sh", "-c", 'trap "exit 0" TERM; sleep 1000000 & wait')  # ends at the first SIGTERM


class Site:
    """`async with Site(folder) as site:`; the folder has the control plane's programs and the Go kubelet.

    `equal_rates`: as `kubelet_configuration` takes it."""

    def __init__(self, folder: Path, *, equal_rates: bool = False) -> None:
        self._stack = AsyncExitStack()
        self.folder, self.equal_rates = folder, equal_rates
        self.plane: ControlPlane
        self.containerd: PrivateContainerd
        self.watch: Watch
        self.runtime: CriRuntime
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        try:
            directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bs", dir="/tmp")))
            (directory / "plane").mkdir()
            (directory / "c").mkdir()
            self.containerd = PrivateContainerd(directory / "c", PROGRAMS)
            self._stack.push_async_callback(self.containerd.stop)
            self.containerd.start()
            self.containerd.import_images()
            self.runtime = CriRuntime(self.containerd.endpoint, request_timeout=60.0)
            self._stack.push_async_callback(self.runtime.close)
            plane = ControlPlane(directory / "plane", folder=self.folder, audit=True)
            self.plane = await self._stack.enter_async_context(plane)
            self.watch = await self._stack.enter_async_context(Watch(self.plane.admin))
        except BaseException as error:
            await self._stack.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    def node(self, agent: str) -> "Node":
        """Return a new node for this agent, not yet started."""
        return Node(self, agent, f"{agent}-{next(self._numbers)}")


class Node:
    """One agent's node. `async with site.node(GO) as node:` starts it and waits until it is Ready."""

    def __init__(self, site: Site, agent: str, name: str) -> None:
        self.site, self.name = site, name
        self.watch, self.admin = site.watch, site.plane.admin
        self.user = f"system:node:{name}"
        given: dict[str, Any] = {
            "node": name,
            "kubeconfig": site.plane.kubeconfig_for_node(name),
            "client_ca": site.plane.ca_file,
            "endpoint": site.containerd.endpoint,
            "equal_rates": site.equal_rates,
        }
        self.agent: Agent = GoKubelet(folder=site.folder, **given) if agent == GO else Bulkhead(**given)
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self._remove()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._remove()

    async def start(self) -> float:
        """Start the agent. Return the seconds from its exec until the API server shows a Ready node."""
        expected = self.watch.node(self.name, ready, "to be Ready")
        began = self.agent.start()
        try:
            return (await expected.within(MAX_POD_SECONDS)).at - began
        except BenchError:
            self.agent.check_alive()
            raise

    async def forget(self) -> None:
        """Stop the agent and delete its node, for a start that registers again."""
        await asyncio.to_thread(self.agent.stop)
        expected = self.watch.node(self.name, gone, "to be gone")
        await self.admin.delete(paths.node(self.name))
        await expected.within(30)

    async def _remove(self) -> None:
        await asyncio.to_thread(self.agent.stop)
        with suppress(ApiStatusError):
            await self.admin.delete(paths.node(self.name))
        await self.force_away()
        await remove_pods(self.site.containerd.endpoint)
        await asyncio.to_thread(self.agent.remove)

    async def force_away(self) -> None:
        """Delete this node's pods from the API server by force, without the agent."""
        for name in self.pods():
            with suppress(ApiStatusError):
                await self.admin.delete(paths.pod("default", name), {"gracePeriodSeconds": 0})

    # Pods

    def pods(self) -> list[str]:
        """Return names of the pods the API server has on this node."""
        return [name for name, pod in self.watch.pods.items() if pod["spec"].get("nodeName") == self.name]

    def new_names(self, what: str, count: int) -> list[str]:
        """Return names that no pod of this run had."""
        return [f"{self.name}-{what}-{next(self._numbers)}" for _ in range(count)]

    def pod(self, name: str, *command: str, **spec: Any) -> Object:
        """Return a busybox pod bound to this node, that ends at once on TERM."""
        return busybox_pod(name, *(command or AT_ONCE), **{"grace": 30, "nodeName": self.name, **spec})

    async def create(self, pod: Object) -> float:
        """Create a pod. Return the seconds until it is Ready."""
        expected = self.watch.pod(pod["metadata"]["name"], ready, "to be Ready")
        began = time.monotonic()
        await self.post(pod)
        return (await expected.within(MAX_POD_SECONDS)).at - began

    async def post(self, obj: Object) -> Object:
        """Create a pod or Secret without waiting."""
        plural = {"Pod": "pods", "Secret": "secrets"}[obj["kind"]]
        return await self.admin.create(f"/api/v1/namespaces/default/{plural}", obj)

    async def delete(self, name: str) -> float:
        """Delete a pod. Return the seconds until the API server no longer has it."""
        expected = self.watch.pod(name, gone, "to be gone")
        began = time.monotonic()
        await self.admin.delete(paths.pod("default", name))
        return (await expected.within(MAX_POD_SECONDS)).at - began

    async def create_all(self, pods: Iterable[Object]) -> float:
        """Create the pods at once. Return the seconds from the first request until the last pod is Ready."""
        pods = list(pods)
        expected = [self.watch.pod(pod["metadata"]["name"], ready, "to be Ready") for pod in pods]
        began = time.monotonic()
        await asyncio.gather(*(self.post(pod) for pod in pods))
        return max([(await one.within(2 * MAX_POD_SECONDS)).at for one in expected]) - began

    async def delete_all(self, names: Iterable[str] | None = None) -> float:
        """Delete these pods, or all, at once. Return the seconds from the first request until the last pod is gone; 0 =
        there is none."""
        names = self.pods() if names is None else list(names)
        if not names:
            return 0.0
        expected = [self.watch.pod(name, gone, "to be gone") for name in names]
        began = time.monotonic()
        await asyncio.gather(*(self.admin.delete(paths.pod("default", name)) for name in names))
        return max([(await one.within(2 * MAX_POD_SECONDS)).at for one in expected]) - began

    async def first_process(self, name: str) -> int:
        """Return the pid of the first process of the pod's container, from the runtime."""
        uid = self.watch.pods[name]["metadata"]["uid"]
        found = (await self.site.runtime.observe(uid)).get(uid)
        pid = found.containers[0].pid if found and found.containers else 0
        if not pid:
            raise BenchError(f"the runtime reports no process of pod {name}")
        return pid
