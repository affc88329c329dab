"""A node with volume; the other services are played: podsync admits, sources has objects, status issues tokens."""

import asyncio
import base64
import contextlib
import copy
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState, PodVolumes
from bus.messages.sources import ChangedObject, FoundObject, GetObject
from bus.messages.status import IssuedToken, RequestToken
from bus.messages.streams import NODE_OBJECT, NODE_RESOURCES, OBJECTS_CHANGED, PODS_VOLUMES, VOLUMES_MOUNTED, events_of
from bus.messages.volume import MountedVolumes, VolumeState
from services.frame.launch import Context
from services.frame.resumption import Resumption
from services.volume.adapters import backing_directory, root_dir
from services.volume.service import build
from shared.config.effective import EffectiveConfig
from shared.time.clock import SystemClock
from shared.version import KUBERNETES_VERSION
from tests.fakes.followed import FollowedStream
from tests.fakes.memory_bus import MemoryNetwork
from tests.service.running_service import running_service
from tests.service.volume.node import without_device_plugins
from tests.support.waits.deadline import WAIT_SECONDS

ACCESS = {
    "name": "access",
    "projected": {
        "defaultMode": 0o644,
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ],
    },
}
KEY = {"name": "key", "secret": {"secretName": "s", "defaultMode": 0o644}}
CFG = {"name": "cfg", "configMap": {"name": "x", "defaultMode": 0o644}}
LABELS = {
    "name": "labels",
    "downwardAPI": {
        "defaultMode": 0o644,
        "items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}],
    },
}
LIMIT = {
    "name": "limit",
    "downwardAPI": {
        "defaultMode": 0o644,
        "items": [{"path": "memory", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory"}}],
    },
}
CACHE: dict[str, Any] = {"name": "cache", "emptyDir": {}}
VOLUMES = [ACCESS, KEY, CFG, LABELS, LIMIT, CACHE]
FOLDERS = {
    "access": "projected",
    "key": "secret",
    "cfg": "configmap",
    "labels": "downward-api",
    "limit": "downward-api",
}


def without_mounts(patch: pytest.MonkeyPatch) -> None:
    """Let tmpfs mounts succeed without root: they are remembered, not made."""
    mounts: set[str] = set()

    def mount_tmpfs(path: Path, *, size: int) -> None:
        mounts.add(str(path))

    without_device_plugins(patch)
    patch.setattr(root_dir, "prepare", lambda path: Path(path).mkdir(exist_ok=True))
    patch.setattr(backing_directory, "mount_tmpfs", mount_tmpfs)
    patch.setattr(os.path, "ismount", lambda path: str(path) in mounts)


class Cluster(SystemClock):
    """What the other services answer, as plain attributes. `silent`: services that take requests and never answer. It
    is the clock of volume, too."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "root"
        self.suspended = 0.0  # seconds for which the machine was suspended
        self.network = MemoryNetwork()
        self.objects: dict[str, dict[str, Any]] = {}
        self.errors: dict[str, str] = {}  # key -> the error that sources returns instead of the object
        self.token = IssuedToken(token="jwt-1", expiration="2100-01-01T00:00:00Z")
        self.silent: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.podsync = self.network.bus("podsync")
        self.admitted = self.podsync.own(PODS_VOLUMES)
        self.resources = self.podsync.own(NODE_RESOURCES)
        self.mounted = FollowedStream(self.podsync, VOLUMES_MOUNTED)
        self.events = FollowedStream(self.podsync, events_of("volume"))

    def wall(self) -> float:
        return super().wall() + self.suspended

    async def start(self) -> None:
        await self.podsync.start()
        await self.start_sources()
        await self.start_status()

    async def start_sources(self) -> None:
        bus = self.network.bus("sources")
        self.changed, self.node = bus.own(OBJECTS_CHANGED), bus.own(NODE_OBJECT)
        bus.answer(GetObject, self._get)
        await bus.start()

    async def start_status(self) -> None:
        bus = self.network.bus("status")
        bus.answer(RequestToken, self._issue)
        await bus.start()

    def put(self, kind: str, name: str, version: str, **data: str) -> None:
        """An object of namespace `shop` as it is from now on, and its change in `objects.changed`."""
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
        content = encoded if kind == "Secret" else data
        self.objects[f"{kind}/shop/{name}"] = {"metadata": {"resourceVersion": version}, "data": content}
        self.changed.put(f"{kind}/shop/{name}", ChangedObject(resource_version=version))

    def delete(self, kind: str, name: str) -> None:
        del self.objects[f"{kind}/shop/{name}"]
        self.changed.put(f"{kind}/shop/{name}", ChangedObject(resource_version=""))

    def admit(
        self, uid: str, *volumes: str, state: PodState = PodState.SYNC, labels: dict[str, str] | None = None
    ) -> None:
        metadata = {"name": f"web-{uid}", "namespace": "shop", "uid": uid, "labels": labels or {}}
        spec = {
            "volumes": copy.deepcopy(VOLUMES),
            "containers": [{"name": "c"}],
            "serviceAccountName": "builder",
        }
        pod = {"metadata": metadata, "spec": spec}
        admitted = PodVolumes(uid=uid, name=f"web-{uid}", namespace="shop", state=state, pod=pod, volumes=volumes)
        self.admitted.put(uid, admitted)

    @contextlib.asynccontextmanager
    async def volume(
        self,
        *,
        sync_frequency: float = 3600.0,
        gates: dict[str, bool] | None = None,
        release: str = KUBERNETES_VERSION,
    ) -> AsyncIterator[None]:
        config = EffectiveConfig(
            node_name="n", root_dir=str(self.root), run_dir="", log_dir="", cert_dir="", kubeconfig="k",
            sync_frequency=sync_frequency, feature_gates=gates or {}, emulated_version=release,
        )  # fmt: skip
        bus = self.network.bus("volume")
        self.resumption = Resumption(lambda: self.suspended)
        context = Context("volume", config, bus, self, asyncio.Event(), resumption=self.resumption)
        service, self.metrics = build(context), context.metrics
        async with running_service(self.network, bus, service):
            yield

    def directory(self, uid: str, volume: str) -> Path:
        return self.root / "pods" / uid / "volumes" / f"kubernetes.io~{FOLDERS[volume]}" / volume

    def read(self, uid: str, volume: str) -> dict[str, str]:
        """The files of a volume as a container sees them."""
        directory = self.directory(uid, volume)
        found = {}
        for entry in directory.iterdir():
            if not entry.name.startswith(".."):
                with contextlib.suppress(FileNotFoundError):  # a link of a file to come, or of one that has just gone
                    found[entry.name] = entry.read_text()
        return found

    async def until_mounted(self, uid: str, volume: str) -> None:
        await self.mounted.until(lambda state: uid in state and _is(state[uid], volume, VolumeState.MOUNTED))

    async def until_shown(self, uid: str, volume: str, **content: str) -> None:
        """Until the files are these; no stream reports a refresh."""
        async with asyncio.timeout(WAIT_SECONDS):
            while self.read(uid, volume) != content:
                await asyncio.sleep(0)

    async def _get(self, request: GetObject) -> FoundObject:
        key = f"{request.kind}/{request.namespace}/{request.name}"
        self.asked[key] += 1
        if "sources" in self.silent:
            await asyncio.Event().wait()
        if key in self.errors:
            return FoundObject(object=None, error=self.errors[key])
        found = self.objects.get(key)
        if found is None:
            return FoundObject(object=None, not_found=True, error=f'{request.kind.lower()} "{request.name}" not found')
        return FoundObject(object=found)

    async def _issue(self, request: RequestToken) -> IssuedToken:
        self.asked[f"token {request.service_account} {request.spec['boundObjectRef']['uid']}"] += 1
        if "status" in self.silent:
            await asyncio.Event().wait()
        return self.token


def _is(volumes: MountedVolumes, name: str, state: VolumeState) -> bool:
    return name in volumes.volumes and volumes.volumes[name].state is state
