"""Applies the operations of the plan to a cluster. Decides nothing, and reports the operations that failed."""

import asyncio
import contextlib
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable

from shared.cri.interface import RuntimeCallError
from shared.kube import paths
from shared.kube.interface import ApiError, ApiStatusError, PatchType
from shared.model.objects import Object
from shared.model.runtime import ContainerState
from tests.soak.plan import Kind, Operation, Round
from tests.soak.sessions import SessionFailedError, Sessions
from tests.soak.shapes import OTHER_IMAGE, PORT, SEALED, SETTINGS, pod_of, sealed, settings
from tests.support.agents.conditions import is_ready
from tests.support.clusters.cluster import Cluster
from tests.support.runtime.containerd import PrivateContainerd

READY_WITHIN = 20.0  # seconds for a pod to be ready for a session or a blow


class Churn:
    """`counts`: operations by kind; `cut_short`: sessions that failed, as they may when a process is killed."""

    def __init__(self, cluster: Cluster, containerd: PrivateContainerd, talk: Sessions) -> None:
        self._cluster, self._containerd, self._talk = cluster, containerd, talk
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._killing = asyncio.Lock()
        self.counts: Counter[str] = Counter()
        self.cut_short: Counter[str] = Counter()
        self.failed: list[str] = []  # operations that must go well and did not
        self._do: dict[Kind, Callable[[Operation], Awaitable[None]]] = {
            Kind.CREATE: self._create,
            Kind.DELETE: self._delete,
            Kind.LABEL: self._patch,
            Kind.ANNOTATE: self._patch,
            Kind.IMAGE: self._patch,
            Kind.DEADLINE: self._patch,
            Kind.SETTINGS: self._change,
            Kind.SEALED: self._change,
            Kind.KILL_CONTAINER: self._kill_container,
            Kind.KILL_PROCESS: self._kill_process,
            Kind.PAUSE: self._pause,
        }

    async def prepare(self) -> None:
        """Make what the pods mount."""
        await self._cluster.create(settings(0))
        await self._cluster.create(sealed(0))

    async def run(self, plan: Round) -> None:
        """All operations of the round, each at its time; returns when the last one has ended."""
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as tasks:
            for operation in plan.operations:
                await asyncio.sleep(began + operation.at - asyncio.get_running_loop().time())
                tasks.create_task(self._one(operation))

    async def _one(self, operation: Operation) -> None:
        self.counts[operation.kind] += 1
        try:
            if operation.kind in self._do:
                async with self._turns[operation.pod]:  # what is done to one pod is done in the plan's order
                    await self._do[operation.kind](operation)
            else:
                await self._session(operation)
        except SessionFailedError:
            self.cut_short[operation.kind] += 1
        except (ApiError, RuntimeCallError, OSError) as error:
            self.failed.append(f"{operation}: {error}")

    # Objects

    async def _create(self, operation: Operation) -> None:
        await self._cluster.create(pod_of(operation.shape, operation.pod))

    async def _delete(self, operation: Operation) -> None:
        await self._cluster.delete_pod(operation.pod, operation.amount)

    async def _patch(self, operation: Operation) -> None:
        match operation.kind:
            case Kind.LABEL:
                body: Object = {"metadata": {"labels": {"number": str(operation.amount)}}}
            case Kind.ANNOTATE:
                body = {"metadata": {"annotations": {"soak/number": str(operation.amount)}}}
            case Kind.IMAGE:
                await self._ready(operation.pod)
                body = {"spec": {"containers": [{"name": operation.container, "image": OTHER_IMAGE}]}}
            case _:
                body = {"spec": {"activeDeadlineSeconds": operation.amount}}
        await self._cluster.plane.admin.patch(paths.pod("default", operation.pod), body)

    async def _change(self, operation: Operation) -> None:
        if operation.kind is Kind.SETTINGS:
            path, body = f"/api/v1/namespaces/default/configmaps/{SETTINGS}", settings(operation.amount)
        else:
            path, body = f"/api/v1/namespaces/default/secrets/{SEALED}", sealed(operation.amount)
        await self._cluster.plane.admin.patch(path, body, PatchType.MERGE)

    # Blows

    async def _kill_container(self, operation: Operation) -> None:
        await self._ready(operation.pod)
        pod = await self._cluster.get_pod(operation.pod)
        uid = str(pod["metadata"]["uid"]) if pod else ""
        for seen in (await self._cluster.agent.runtime.observe(uid)).values():
            for container in seen.containers:
                if (
                    container.name == operation.container
                    and container.state is ContainerState.RUNNING
                    and container.pid
                ):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(container.pid, signal.SIGKILL)

    async def _kill_process(self, operation: Operation) -> None:
        async with self._killing:
            if operation.pod == "containerd":
                os.kill(self._containerd.pid, signal.SIGKILL)
                await asyncio.to_thread(self._containerd.end)
                await asyncio.to_thread(self._containerd.start)
            elif self._cluster.agent.pid_of(operation.pod):
                self._cluster.agent.reset_start_counts()  # many kills are the test's doing and no crash loop
                self._cluster.agent.kill(operation.pod)

    async def _pause(self, operation: Operation) -> None:
        self._cluster.plane.pause()
        try:
            await asyncio.sleep(operation.amount)
        finally:
            self._cluster.plane.resume()

    # Sessions

    async def _session(self, operation: Operation) -> None:
        pod, container = operation.pod, operation.container
        if not await self._ready(pod):
            self.cut_short[f"{operation.kind} (not ready)"] += 1
            return
        match operation.kind:
            case Kind.EXEC:
                await self._talk.exec(pod, container, "sh", "-c", "ls -R /etc; echo fine")
            case Kind.EXEC_BROKEN:
                await self._talk.break_off(pod, container, "exec", 0.7, "sh", "-c", "while echo x; do sleep 0.1; done")
            case Kind.ATTACH_BROKEN:
                await self._talk.break_off(pod, container, "attach", 0.7)
            case Kind.LOGS:
                await self._talk.logs(pod, container)
            case Kind.LOGS_BROKEN:
                await self._talk.logs(pod, container, follow=1.0)
            case _:
                await self._talk.forward(pod, PORT)

    async def _ready(self, name: str) -> bool:
        """Wait until the pod is ready; False when it is not in time, or gone."""
        deadline = asyncio.get_running_loop().time() + READY_WITHIN
        while asyncio.get_running_loop().time() < deadline:
            try:
                pod = await self._cluster.get_pod(name)
            except ApiStatusError:
                pod = {}
            if pod is None:
                return False
            if pod and is_ready(pod):
                return True
            await asyncio.sleep(0.2)
        return False
