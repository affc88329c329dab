"""Pods between podsync and the API server's double: sources and podsync are played, status is the real thing."""

import asyncio
from pathlib import Path
from typing import Any, TypeVar

from bus.interface import OwnedStream
from bus.messages.podsync import AdmittedPod, PodState, PodStatus
from bus.messages.sources import ApiPodStatus, DesiredPod, MirrorPod, NodeObject
from bus.messages.streams import (
    NODE_OBJECT,
    PODS_ADMITTED,
    PODS_API_STATUS,
    PODS_DESIRED,
    PODS_MIRRORS,
    PODS_STATUS,
)
from services.frame.launch import Context
from services.status.adapters.clients import Clients
from services.status.controllers.claim_statuses import ClaimStatuses
from services.status.controllers.pods import Pods
from services.status.controllers.reviews import Reviews
from services.status.core.pod_status_merge import status_patch
from shared.config.effective import EffectiveConfig
from shared.kube import paths
from shared.metrics.registry import Registry
from shared.model.frozen_copy import replace
from shared.model.objects import Object, annotations
from tests.fakes.api_resources import NEWEST, OlderServer, target_of
from tests.fakes.api_server import FakeApiServer
from tests.fakes.memory_bus import MemoryNetwork
from tests.fakes.virtual_time import ended, pass_time, virtual_clock

T = TypeVar("T")

MIRROR = "kubernetes.io/config.mirror"
USER = "system:node:n1"
POD_PATHS = "/api/v1/namespaces/default/pods/"


class Cluster:
    """Everything but status runs all the time; `start` and `stop` act on status."""

    def __init__(self, directory: Path, drops: OlderServer = NEWEST) -> None:
        self.network = MemoryNetwork(virtual_clock())
        self.server = FakeApiServer(self.network.clock, drops=drops)
        self.config = EffectiveConfig(
            node_name="n1", root_dir=str(directory / "root"), run_dir=str(directory), log_dir="", cert_dir=""
        )
        self.watching = True
        self.statuses_by_uid: dict[str, PodStatus] = {}
        self.admitted_by_uid: dict[str, AdmittedPod] = {}
        self.manifests: dict[str, DesiredPod] = {}
        self.status: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """The neighbours start, and status."""
        self.server.put(paths.node("n1"), {})
        await self.start_sources()
        await self.start_podsync()
        await self.start()

    async def start_sources(self) -> None:
        bus = self.sources = self.network.bus("sources")
        self.desired, self.mirrors = bus.own(PODS_DESIRED), bus.own(PODS_MIRRORS)
        self.api_statuses = bus.own(PODS_API_STATUS)
        self.node = bus.own(NODE_OBJECT)
        await bus.start()
        self.show()
        for stream in (self.desired, self.api_statuses, self.mirrors, self.node):
            stream.mark_complete()

    async def start_podsync(self, *, complete: bool = True) -> None:
        bus = self.podsync = self.network.bus("podsync")
        self.admitted, self.statuses = bus.own(PODS_ADMITTED), bus.own(PODS_STATUS)
        await bus.start()
        if complete:
            for uid, admitted in self.admitted_by_uid.items():
                self.admitted.put(uid, admitted)
            for uid, status in self.statuses_by_uid.items():
                self.statuses.put(uid, status)
            self.admitted.mark_complete()
            self.statuses.mark_complete()

    async def start(self) -> None:
        bus = self.network.bus("status")
        clients = self.clients = Clients(*(self.server.client(USER) for _ in range(6)))
        self.metrics = Registry("status")
        context = Context("status", self.config, bus, self.network.clock, asyncio.Event(), metrics=self.metrics)
        pods = Pods(context, clients)
        Reviews(context, clients, lambda: 0.0)
        ClaimStatuses(context, clients)
        await bus.start()
        self.status = asyncio.create_task(pods.run())

    async def stop(self) -> None:
        """SIGKILL of status."""
        if self.status is not None:
            self.network.kill("status")
            await ended(self.status)
            self.status = None

    def show(self) -> None:
        """What the watch shows now."""
        shown: dict[str, DesiredPod] = dict(self.manifests)
        mirrors: dict[str, MirrorPod] = {}
        for _, pod in self.server.store.below(target_of(paths.PODS)):
            metadata = pod["metadata"]
            name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
            if MIRROR in annotations(pod):
                config_hash = annotations(pod)[MIRROR]
                mirrors[f"{name}_{namespace}"] = MirrorPod(
                    uid=uid, name=name, namespace=namespace, config_hash=config_hash, pod=dict(pod)
                )
            else:
                shown[uid] = DesiredPod(uid=uid, source="api", pod=dict(pod))
        node = self.server.get(paths.node("n1"))
        nodes = {"node": NodeObject(node=node)} if node is not None else {}
        statuses = {
            uid: ApiPodStatus(
                resource_version=one.pod["metadata"]["resourceVersion"], status=one.pod.get("status") or {}
            )
            for uid, one in shown.items()
            if one.source == "api"
        }
        _show(self.api_statuses, statuses)
        for uid, one in shown.items():  # a change of the status alone is not in `pods.desired`
            if (before := self.desired.get(uid)) is not None and _essence(before) == _essence(one):
                self.desired.refresh(uid, one)
        _show(self.desired, shown)
        _show(self.mirrors, mirrors)
        _show(self.node, nodes)

    async def live(self, seconds: float) -> None:
        """Time passes; the watch shows what happens within half a second, at first within a tenth."""
        left = seconds
        while left > 0.001:
            if self.watching:
                self.show()
            step = 0.1 if seconds - left < 1 else min(left, 0.5)
            await pass_time(self.network, step)
            left -= step

    def create(self, name: str, **status: Any) -> str:
        """A pod bound to the node; its UID."""
        pod: Object = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        bound = self.server.bind(pod | ({"status": status} if status else {}), "n1")
        return str(bound["metadata"]["uid"])

    def manifest(self, uid: str, name: str = "web-n1") -> None:
        """A static pod appears in its manifest."""
        notes = {"kubernetes.io/config.hash": uid, "kubernetes.io/config.source": "file"}
        metadata = {"name": name, "namespace": "default", "uid": uid, "annotations": notes}
        spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}
        self.manifests[uid] = DesiredPod(uid=uid, source="file", pod={"metadata": metadata, "spec": spec})

    def admit(self, uid: str, state: PodState = PodState.SYNC, *, name: str = "web", source: str = "api") -> None:
        """podsync publishes its state of the pod."""
        self.admitted_by_uid[uid] = AdmittedPod(uid=uid, name=name, namespace="default", state=state, source=source)
        self.admitted.put(uid, self.admitted_by_uid[uid])

    def forget(self, uid: str) -> None:
        """podsync has nothing of the pod any more."""
        del self.admitted_by_uid[uid]
        self.admitted.delete(uid)

    def publish_status(
        self, uid: str, phase: str = "Running", *, name: str = "web", ready: bool = True, **more: Any
    ) -> None:
        """podsync computes a status."""
        before = self.statuses_by_uid.get(uid)
        version = (1, before.version[1] + 1 if before else 1)
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T00:00:00Z"}
        status = {"phase": phase, "startTime": "2026-01-01T00:00:00Z", "conditions": [condition], **more}
        computed = PodStatus(uid=uid, name=name, namespace="default", version=version, status=status)
        self.statuses_by_uid[uid] = computed if before is None else replace(before, version=version, status=status)
        self.statuses.put(uid, self.statuses_by_uid[uid])

    def pod(self, name: str = "web") -> Object | None:
        """As the API server has it."""
        return self.server.get(POD_PATHS + name)

    def shown(self, name: str = "web") -> Object:
        """The status as the API server has it."""
        pod = self.pod(name)
        assert pod is not None
        return dict(pod["status"])

    def sent(self, method: str = "") -> list[str]:
        """Requests of the node so far, `<METHOD> <rest of the path>`."""
        lines = [f"{verb} {path.removeprefix(POD_PATHS)}" for verb, path in self.server.requests]
        return [line for line in lines if line.startswith(method)]

    def is_written(self, uid: str) -> bool:
        """The API server shows podsync's newest status of the pod, on its mirror where it is a static one."""
        published = self.statuses_by_uid[uid]
        pod = self.pod(published.name)
        if pod is None or uid not in (pod["metadata"]["uid"], annotations(pod).get(MIRROR)):
            return False
        return status_patch(pod, published.status, now="") is None


def _essence(desired: DesiredPod) -> Object:
    metadata = {key: value for key, value in desired.pod["metadata"].items() if key != "resourceVersion"}
    return {key: value for key, value in desired.pod.items() if key != "status"} | {"metadata": metadata}


def _show(stream: OwnedStream[T], values: dict[str, T]) -> None:
    for key in stream.keys():  # noqa: SIM118 (no mapping)
        if key not in values:
            stream.delete(key)
    for key, value in values.items():
        stream.put(key, value)
