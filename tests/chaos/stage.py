"""What all cells of a run share: a control plane, an agent on its own containerd, steady pods, a client that watches.

Sets it up, queries it, and makes it calm again between cells; kills nothing and decides nothing.
"""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from bus.messages.streams import SERVICES
from shared.cri.interface import RuntimeCallError
from shared.kube import paths
from shared.kube.interface import ApiStatusError, ApiUnreachableError
from shared.model.objects import Object
from shared.model.runtime import RuntimePod
from tests.chaos import pods
from tests.chaos.costs import DIRECT, PROXIED
from tests.chaos.fronts import FRONTS
from tests.chaos.sessions import Session, trust_of
from tests.chaos.watching import Watching
from tests.support.agents import evidence
from tests.support.agents.agent import NODE
from tests.support.agents.conditions import is_ready
from tests.support.clusters.cluster import Cluster
from tests.support.runtime.containerd import PrivateContainerd
from tools import leftovers

LEASE_SECONDS = 12
RENEW_INTERVAL = LEASE_SECONDS / 4  # the kubelet renews after a quarter of the duration
SETTLED_WITHIN = 90.0  # seconds; whatever takes longer is lost
_LOOK_EVERY = 0.1


class Stage:
    """`async with Stage("supervisord") as stage`: steady pods are Ready and exec sessions are open."""

    def __init__(self, front: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="bkill", dir="/tmp"))
        self.containerd = PrivateContainerd(self.directory)
        self.cluster = Cluster(
            self.directory,
            containerd=self.containerd,
            config={"nodeLeaseDurationSeconds": LEASE_SECONDS},
            plane={"feature_gates": {"BoundServiceAccountTokenVolume": True}},
            world=FRONTS[front],
        )
        self.settings_version = 1
        self.sessions: dict[str, Session] = {}
        self._stack = AsyncExitStack()
        self.watching: Watching

    async def __aenter__(self) -> Self:
        try:
            self._stack.callback(self._remove_directory)
            self._stack.push_async_callback(self.containerd.stop)
            await asyncio.to_thread(self.containerd.start)
            await asyncio.to_thread(self.containerd.import_images)
            await self._stack.enter_async_context(self.cluster)
            self.agent = self.cluster.agent
            self.watching = await self._stack.enter_async_context(Watching(self.cluster.plane.admin))
            self.sight = self.watching.sight
            self._stack.push_async_callback(self._close_sessions)
            await self._put_steady_pods()
            await self.calm()
        except BaseException as error:
            await self._stack.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    # Between cells

    async def calm(self) -> None:
        """All seven below this supervisord and beating, no back-off waiting, steady pods Ready, exec sessions open."""
        await self.agent.wait_for(self.all_replaced, "the services of the newest supervisord", SETTLED_WITHIN)
        await self.agent.wait_beats(*SERVICES, seconds=SETTLED_WITHIN)
        self.agent.reset_start_counts()
        names = self.steady_names()
        await self.watching.until(lambda _: self.all_ready(names), "the steady pods to be Ready", SETTLED_WITHIN)
        lost = await self.sessions_lost()
        for way in lost or [way for way in (DIRECT, PROXIED) if way not in self.sessions]:
            await self._open_session(way)

    def all_replaced(self) -> bool:
        """Whether every service is of the present supervisord: those of a killed one are replaced by the next one's."""
        return all(_parent_of(self.agent.pid_of(service)) == self.agent.supervisord_pid for service in SERVICES)

    # Pods

    def steady_names(self) -> list[str]:
        """By the names the API server has."""
        return [*(str(pod["metadata"]["name"]) for pod in pods.steady()), f"{pods.STATIC}-{NODE}"]

    def all_ready(self, names: Iterable[str]) -> bool:
        """Whether the client has seen all of them and they are Ready."""
        return all((pod := self.sight.named(name)) is not None and is_ready(pod) for name in names)

    def none_left(self, names: Iterable[str]) -> bool:
        """Whether the API server has none of them any more."""
        return not {str(pod["metadata"]["name"]) for pod in self.sight.pods.values()} & set(names)

    async def create(self, *wanted: Object) -> None:
        """Create these pods, as soon as the API server takes them."""
        await asyncio.gather(*(self._create(pod) for pod in wanted))

    async def delete(self, names: Iterable[str]) -> None:
        """Delete these pods with a grace of a second."""
        await asyncio.gather(*(self._delete(name) for name in names))

    async def change_settings(self) -> None:
        """Give the ConfigMap its next content."""
        self.settings_version += 1
        path = f"/api/v1/namespaces/default/configmaps/{pods.SETTINGS}"
        await self.cluster.plane.admin.update(path, pods.settings(self.settings_version))

    def settings_are_shown(self) -> bool:
        """Whether the steady pod with files sees the newest content."""
        pod = self.sight.named("steady-files")
        uid = pod["metadata"]["uid"] if pod is not None else ""
        file = self.pods_directory / uid / "volumes/kubernetes.io~configmap" / pods.SETTINGS / "colour"
        return file.exists() and file.read_text() == str(self.settings_version)

    @property
    def pods_directory(self) -> Path:
        """Where the agent keeps a directory per pod."""
        return self.agent.home.path / "kubelet" / "pods"

    async def runtime_pods(self) -> Mapping[str, RuntimePod]:
        """What the runtime has, by UID; waits for a runtime that is on its way back."""
        deadline = time.monotonic() + SETTLED_WITHIN
        while True:
            try:
                return await self.agent.runtime.observe()
            except RuntimeCallError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_LOOK_EVERY)

    def wanted(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """UID in the runtime -> container names, of the pods of these names that the API server has."""
        found = {}
        for name in names:
            pod = self.sight.named(name)
            if pod is not None:
                annotations = pod["metadata"].get("annotations") or {}
                uid = annotations.get("kubernetes.io/config.mirror") or pod["metadata"]["uid"]
                found[str(uid)] = pods.container_names(pod)
        return found

    def evidence(self, name: str) -> str:
        """What a failed cell leaves: `bulkhead explain` of each pod that is not Ready, and a copy of the files of the
        agent and of the runtime's log, by this name."""
        home = self.agent.home.path
        waiting = [str(pod["metadata"]["name"]) for pod in self.sight.pods.values() if not is_ready(pod)]
        stories = evidence.stories(home / "kubelet", self.wanted(waiting))
        kept = evidence.keep(home, name, self.containerd.log)
        return "\n".join([*stories, f"---- files of the agent and the log of containerd: {kept}"])

    # Exec sessions

    async def sessions_lost(self, seconds: float = 10.0) -> list[str]:
        """The ways whose session ended or is silent; they are closed."""
        ways = list(self.sessions)
        well = await asyncio.gather(*(self.sessions[way].answers(seconds) for way in ways))
        lost = [way for way, answered in zip(ways, well, strict=True) if not answered]
        for way in lost:
            await self.sessions.pop(way).close()
        return lost

    async def _open_session(self, way: str) -> None:
        plane = self.cluster.plane
        trust = trust_of(plane.kubelet_client_pair)
        if way == DIRECT:
            place = f"https://127.0.0.1:{self.agent.port}/exec/default/{pods.SESSION_POD}/main"
            url = f"{place}?command=cat&input=1&output=1"
        else:
            place = f"{plane.url}{paths.pod('default', pods.SESSION_POD)}/exec"
            url = f"{place}?container=main&command=cat&stdin=true&stdout=true"

        async def opened() -> Session | None:
            try:
                return await Session.open(url, trust)
            except aiohttp.ClientConnectionError:  # a server that has sent a beat may not listen yet
                return None
            except aiohttp.WSServerHandshakeError as error:  # an API server that cannot connect to it
                if way == DIRECT or error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
                return None

        self.sessions[way] = await self.agent.wait_for(opened, f"an exec session ({way})", SETTLED_WITHIN)

    async def _close_sessions(self) -> None:
        await asyncio.gather(*(session.close() for session in self.sessions.values()))

    # Pieces

    async def _put_steady_pods(self) -> None:
        await self.cluster.create(pods.settings(self.settings_version))
        self.agent.put_manifest(pods.STATIC, pods.static())
        await self.create(*pods.steady())

    async def _create(self, pod: Object) -> None:
        deadline = time.monotonic() + SETTLED_WITHIN
        while True:
            try:
                await self.cluster.create(pod)
            except ApiUnreachableError:
                if time.monotonic() > deadline:
                    raise
            except ApiStatusError as error:
                if error.already_exists:
                    return
                if time.monotonic() > deadline or error.code < 403:  # an API server that just started refuses some
                    raise
            else:
                return
            await asyncio.sleep(_LOOK_EVERY)

    async def _delete(self, name: str) -> None:
        deadline = time.monotonic() + SETTLED_WITHIN
        while True:
            try:
                await self.cluster.delete_pod(name, grace=1)
            except ApiUnreachableError:
                if time.monotonic() > deadline:
                    raise
            except ApiStatusError as error:
                if error.not_found:
                    return
                raise
            else:
                return
            await asyncio.sleep(_LOOK_EVERY)

    def _remove_directory(self) -> None:
        leftovers.unmount_below(self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
