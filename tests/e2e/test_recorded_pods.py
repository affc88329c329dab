"""The pods a Go kubelet was recorded with, on a real API server and a real containerd: what we ask the runtime for,
what the status shows and which events are recorded equals the recording.

The differences and their reasons are in one table, EXCEPTIONS. Statuses are compared as podsync published them,
complete, each moment on the way; where the recording shows a state that stays, the API server must come to show it too.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
import pytest_asyncio

from bus.interface import Change, Put
from bus.manifest import new_manifest
from bus.messages.podsync import PodStatus
from bus.messages.streams import PODS_STATUS
from bus.process_bus import ProcessBus
from services.dockershim.service import DockerShim
from shared.kube import paths
from shared.model.objects import Object
from tests.fakes.cri_proxy import CriProxy, of_pod
from tests.support.agents.agent import NODE
from tests.support.agents.behaviour import PLANE
from tests.support.agents.world import World
from tests.support.clusters.cluster import Cluster
from tests.support.installed.chosen_programs import chosen_suite, runs_in_docker
from tests.support.installed.debian_containerd import INSTALLED
from tests.support.recorded.differences import Difference
from tests.support.recorded.exceptions import EXCEPTIONS, NOT_COMPARED, STATIC, equal, unexplained, unneeded
from tests.support.recorded.pods import NAMES, recording
from tests.support.recorded.run import Call, Calls, Place, in_groups, plain_event, plain_status
from tests.support.runtime.containerd import PrivateContainerd
from tests.support.runtime.docker import PrivateDocker
from tests.support.runtime.docker_limits import Limit, lacks_capabilities
from tests.support.waits.deadline import WAIT_SECONDS
from tools.oci_image import BUSYBOX_CONTENT, PAUSE_CONTENT, Image

pytestmark = [
    pytest.mark.root,
    pytest.mark.versions,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
]

SPACE = "rec"
TIMEOUT = 2 * WAIT_SECONDS  # seconds; most of it is the machine's
IMAGES = tuple(
    Image(name=f"registry.k8s.io/e2e-test-images/{name}", command=("/bin/sh",), user=user, files=BUSYBOX_CONTENT.files)
    for name, user in (("busybox:1.36.1-1", ""), ("busybox:1.37.0-1", ""), ("nonroot:1.5", "1234"))
)
REFUSED = ("forbidden-sysctl", "node-selector-mismatch", "out-of-cpu")  # while nothing else takes room
BY_THE_CLOCK = ("bad-command", "crashloop", "deadline", "poststart-fails", "probes")
LARGE = ("env-sources", "pod-level-resources", "qos-burstable")  # more than the node has for all at once
ALONE = (*BY_THE_CLOCK, *LARGE)
PASSING = ("bad-command", "crashloop", "fails-never", "image-absent", "poststart-fails")


async def test_the_table_names_recordings_that_there_are() -> None:
    assert len(NAMES) == 39
    for names in (REFUSED, STATIC, ALONE, PASSING, NOT_COMPARED, *(row.only for row in EXCEPTIONS)):
        assert set(names) <= set(NAMES)
    assert all(row.why for row in EXCEPTIONS)


class ProxiedContainerd(PrivateContainerd):
    """A containerd that the agent reaches by way of a proxy, which notes what is asked."""

    proxy: CriProxy | None = None

    @property
    def endpoint(self) -> str:
        return self.proxy.endpoint if self.proxy is not None else super().endpoint

    def go_direct(self) -> None:
        """The proxy is about to end."""
        self.proxy = None


class EmulatesRecorded(World):
    """An agent that behaves as the kubelet that was recorded."""

    own_keys: ClassVar[Mapping[str, Any]] = {"emulatedVersion": "1.36"}


class ProxiedDocker:
    """A Docker behind a shim in this loop, in the same way."""

    def __init__(self, directory: Path) -> None:
        self.docker = PrivateDocker(directory)
        self.log = self.docker.log
        self.proxy: CriProxy | None = None
        self._shim: asyncio.Task[None] | None = None

    @property
    def endpoint(self) -> str:
        return self.proxy.endpoint if self.proxy is not None else f"unix://{self.docker.shim_socket}"

    async def start(self) -> None:
        await asyncio.to_thread(self.docker.start)
        self._shim = asyncio.create_task(DockerShim(self.docker.settings()).run())

    def import_images(self, images: Iterable[Image]) -> None:
        self.docker.load_images(images)

    def go_direct(self) -> None:
        self.proxy = None

    async def stop(self) -> None:
        if self._shim is not None:
            self._shim.cancel()
            await asyncio.gather(self._shim, return_exceptions=True)
        await asyncio.to_thread(self.docker.stop)


class Stage:
    """The cluster, what podsync has published of each pod so far, and what it asked the runtime for."""

    def __init__(self, cluster: Cluster, proxy: CriProxy) -> None:
        self.cluster, self.proxy = cluster, proxy
        self.history: dict[str, list[Object]] = {}  # UID -> statuses
        self.uids: dict[str, str] = {}  # recording -> UID
        self.statuses = ProcessBus("recorder", new_manifest(cluster.agent.home.run_dir))
        self.statuses.follow(PODS_STATUS, self._on_status)

    async def __aenter__(self) -> Self:
        await self.statuses.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.statuses.stop()

    def _on_status(self, change: Change[PodStatus]) -> None:
        if isinstance(change, Put):
            self.history.setdefault(change.value.uid, []).append(change.value.status)
            name = change.value.name.removesuffix(f"-{NODE}")
            self.uids[name] = change.value.uid

    def name_of(self, name: str) -> str:
        """The pod's name in the API."""
        return f"{pod_name(name)}-{NODE}" if name in STATIC else pod_name(name)

    async def submit(self, name: str) -> None:
        pod = json.loads(json.dumps(recording(name)["submitted"]))
        pod["metadata"]["namespace"] = SPACE
        if name in STATIC:
            del pod["spec"]["nodeName"]
            self.cluster.agent.put_manifest(name, pod)
        else:
            pod["spec"]["nodeName"] = NODE
            await self.cluster.create(pod)

    async def delete(self, name: str) -> None:
        if name in STATIC:
            self.cluster.agent.remove_manifest(name)
        else:
            await self.cluster.delete_pod(pod_name(name), namespace=SPACE)

    def place(self, name: str) -> Place:
        """Our words for what is another in every place."""
        home, uid = self.cluster.agent.home, self.uids[pod_name(name)]
        newest = self.history[uid][-1]
        words = [
            (f"{pod_name(name)}-{NODE}", pod_name(name)),
            (NODE, "NODE"),
            (str(home.log_dir / "pods"), "/var/log/pods"),
            (str(home.path / "kubelet"), "/var/lib/kubelet"),
            (f"/{home.path.name}/kubepods", "/kubepods"),
            ("10.0.0.1", "SERVICE_IP"),
        ]
        return Place(uid=uid, words=(*words, *addresses(newest)))

    async def until(self, holds: Callable[[], bool], left: Callable[[], list[Difference]]) -> None:
        """Wait; where it does not come, fail with the differences."""

        async def look() -> bool:
            return holds()

        try:
            await self.cluster.wait_for(look, "the recording", TIMEOUT)
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *map(str, left())])) from None


def addresses(status: Object) -> tuple[tuple[str, str], ...]:
    pod, host = str(status.get("podIP") or "no address"), str(status.get("hostIP") or "no address")
    return ((host, "HOST_IP"), (pod, "POD_IP"))


def pod_name(name: str) -> str:
    """The file of one recording has a shorter name than its pod."""
    return str(recording(name)["submitted"]["metadata"]["name"])


def recorded_place(recorded: Object) -> Place:
    words = (("node1", "NODE"), ("10.96.0.1", "SERVICE_IP"), *addresses(recorded["api_pod"].get("status") or {}))
    return Place(uid=recorded["api_pod"]["metadata"]["uid"], words=words)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    directory: Path = tmp_path_factory.mktemp("c")
    containerd: Any = ProxiedDocker(directory) if runs_in_docker() else ProxiedContainerd(directory)
    config = {"clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local"}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(containerd.stop)
        if (started := containerd.start()) is not None:
            await started
        await asyncio.to_thread(containerd.import_images, (PAUSE_CONTENT, *IMAGES))
        proxy = await stack.enter_async_context(CriProxy(containerd.endpoint, directory / "p.sock"))
        containerd.proxy = proxy
        stack.callback(containerd.go_direct)
        running = Cluster(directory, containerd=containerd, config=config, plane=PLANE, world=EmulatesRecorded)
        cluster = await stack.enter_async_context(running)
        await make_space(cluster)
        stage = await stack.enter_async_context(Stage(cluster, proxy))
        for name in REFUSED:
            await stage.submit(name)
        await cluster.wait_for(lambda: all_ended(cluster), "the pods that are refused", TIMEOUT)
        for name in NAMES:
            if name not in (*REFUSED, *ALONE):
                await stage.submit(name)
        yield stage


async def all_ended(cluster: Cluster) -> bool:
    pods = await cluster.items(paths.pods(SPACE))
    return len(pods) == len(REFUSED) and all(pod["status"]["phase"] == "Failed" for pod in pods)


async def make_space(cluster: Cluster) -> None:
    """The namespace of the recordings with what their pods refer to."""
    admin = cluster.plane.admin
    await admin.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    metadata = {"namespace": SPACE}
    data = {"k1": "v1", "k2": "v2"}
    await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata | {"name": "cm"}, "data": data})
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata | {"name": "sec"}}
    await cluster.create(secret | {"stringData": {"pw": "s3cret"}})

    async def ready() -> bool:
        account = await cluster.get(f"/api/v1/namespaces/{SPACE}/serviceaccounts/default")
        authority = await cluster.get(f"/api/v1/namespaces/{SPACE}/configmaps/kube-root-ca.crt")
        return bool(account and account.get("secrets") and authority)

    await cluster.wait_for(ready, "the namespace's service account", TIMEOUT)


_PRIVILEGED = pytest.param("privileged", marks=pytest.mark.beyond_docker(Limit.PRIVILEGED, where=lacks_capabilities()))


@pytest.mark.parametrize("name", [_PRIVILEGED if name == "privileged" else name for name in NAMES])
async def test_a_recorded_pod(stage: Stage, name: str) -> None:
    recorded = recording(name)
    if name in ALONE:
        await stage.submit(name)
    try:
        await stage.until(lambda: pod_name(name) in stage.uids, list)
        if name not in NOT_COMPARED:
            await has_been_as_recorded(stage, name, recorded)
            if name not in PASSING and name not in STATIC:
                await is_in_the_api(stage, name, recorded)
        await has_called(stage, name, recorded, deleted=False)
        if name not in NOT_COMPARED:
            await wait_events(stage, name, recorded)
    finally:
        await stage.delete(name)
    if name not in NOT_COMPARED:
        await has_called(stage, name, recorded, deleted=True)


async def has_been_as_recorded(stage: Stage, name: str, recorded: Object) -> None:
    """podsync has published the recorded status at some moment."""
    wanted = plain_status(recorded["api_pod"]["status"], recorded_place(recorded))
    seen: list[Any] = []

    def published() -> bool:
        history = stage.history.get(stage.uids.get(pod_name(name), ""), [])
        new = [plain_status(status, stage.place(name)) for status in history[len(seen) :]]
        seen.extend(new)
        return any(equal("status", name, status, wanted) for status in new)

    await stage.until(published, lambda: unexplained("status", name, seen[-1] if seen else None, wanted))


async def is_in_the_api(stage: Stage, name: str, recorded: Object) -> None:
    wanted = plain_status(recorded["api_pod"]["status"], recorded_place(recorded))
    seen: dict[str, Any] = {}

    async def shown() -> bool:
        pod = await stage.cluster.get_pod(pod_name(name), SPACE)
        seen["status"] = plain_status(pod["status"] if pod else {}, stage.place(name))
        return equal("status and api", name, seen["status"], wanted)

    await look_until(stage, shown, lambda: unexplained("status and api", name, seen.get("status"), wanted))


async def wait_events(stage: Stage, name: str, recorded: Object) -> None:
    """Type, reason, message and field path of the events; how often is chance."""
    wanted = event_list(plain_event(event, recorded_place(recorded)) for event in recorded["events"])
    seen: list[Object] = []

    async def all_events() -> bool:
        place = stage.place(name)
        events = await stage.cluster.events_of(stage.name_of(name), SPACE)
        seen[:] = event_list(plain_event(event, place) for event in events)
        return equal("events", name, seen, wanted)

    await look_until(stage, all_events, lambda: unexplained("events", name, seen, wanted))


def event_list(events: Iterable[tuple[str, ...]]) -> list[Object]:
    return [dict(zip(("type", "reason", "message", "fieldPath"), event, strict=True)) for event in sorted(set(events))]


async def look_until(stage: Stage, holds: Callable[[], Awaitable[bool]], left: Callable[[], list[Difference]]) -> None:
    """As Stage.until, for what is asked of the API server."""
    try:
        await stage.cluster.wait_for(holds, "the recording", TIMEOUT)
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *map(str, left())])) from None


async def has_called(stage: Stage, name: str, recorded: Object, *, deleted: bool) -> None:
    """What was asked of the runtime, in which order. A pod that goes on trying was deleted after as many tries as there
    was time for: of it the beginning and the end are compared. The collection of the dead sandbox, up to a minute
    later, is left out."""

    def plain_calls(place: Place, calls: Iterable[Mapping[str, Any]], *, base64_values: bool) -> list[Call]:
        plain = before_collection(Calls(place, base64_values=base64_values).in_plain_form(calls))
        if name in NOT_COMPARED:
            return [(method.removesuffix(" failed"), request) for method, request in plain[:2]]
        return without_repeated_probes(plain) if name == "probes" else plain

    until, after = recorded["cri_until_delete"], recorded["cri_after_delete"]
    begins = plain_calls(recorded_place(recorded), until, base64_values=True)
    all_calls = plain_calls(recorded_place(recorded), [*until, *after], base64_values=True)

    def both() -> tuple[list[Call], list[Call]]:
        calls = [asdict(call) for call in of_pod(stage.proxy.calls, stage.name_of(name))]
        ours = plain_calls(stage.place(name), calls, base64_values=False)
        if not deleted:
            return ours[: len(begins)], begins
        if name not in PASSING:
            return ours, all_calls
        ends = len(all_calls) - len(begins)
        parts = [*ours[: len(begins)], *without_attempts(ours[max(len(begins), len(ours) - ends) :])]
        return parts, [*begins, *without_attempts(all_calls[len(begins) :])]

    await stage.until(lambda: equal("calls", name, *both()), lambda: unexplained("calls", name, *both()))


@pytest.mark.skipif(chosen_suite() != INSTALLED or runs_in_docker(), reason="the recordings are of containerd 1.6")
async def test_every_exception_is_needed(stage: Stage, request: pytest.FixtureRequest) -> None:
    """Runs last; what a run of all recordings did not need goes from the table."""
    if request.session.testsfailed or len(request.session.items) < len(NAMES):
        pytest.skip("not every recording was compared")
    assert not (found := unneeded()), "\n".join(found)


def without_attempts(calls: list[Call]) -> list[Call]:
    return [(method, {key: str(value).split("/")[0] for key, value in request.items()}) for method, request in calls]


def without_repeated_probes(calls: list[Call]) -> list[Call]:
    """The order of probes of one container, how many there were, and whether one met its end, is chance."""
    first = [call for i, call in enumerate(calls) if not call[0].startswith("ExecSync") or call not in calls[:i]]
    first = [call for call in first if call[0] != "ExecSync failed"]
    return in_groups(first, lambda call: call[0] == "ExecSync")


def before_collection(calls: list[Call]) -> list[Call]:
    methods = [method for method, _ in calls]
    if "RemovePodSandbox" in methods:
        methods = methods[: methods.index("RemovePodSandbox") - 1]
    end = len(methods)  # the minute's sweep may take the containers now and the sandbox the next time
    while end and methods[end - 1] == "RemoveContainer":
        end -= 1
    return calls[: end if end and methods[end - 1] == "StopPodSandbox" else len(methods)]
