"""The pods a Go kubelet was recorded with, on a real API server and a real containerd: what we ask the runtime for,
what the status shows and which events are told equals the recording.

Where it does not, and why, stands in one table, EXCEPTIONS. Statuses are compared as podsync published them, whole,
each moment on the way; where the recording shows a state that stays, the API server must come to show it too.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import pytest
import pytest_asyncio

from bus.interface import Change, Put
from bus.manifest import new_manifest
from bus.messages.podsync import PodStatus
from bus.messages.streams import PODS_STATUS
from bus.node import NodeBus
from shared.kube import paths
from shared.model.objects import Object
from tests.agent import NODE
from tests.cluster import Cluster
from tests.containerd import PrivateContainerd
from tests.fakes.cri_proxy import CriProxy, of_pod
from tests.recorded import NAMES, recording
from tests.recorded_run import Call, Calls, Place, differences, in_groups, plain_event, plain_status
from tools.oci_image import BUSYBOX_CONTENT, PAUSE_CONTENT, Image

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

SPACE = "rec"
PATIENCE = 60.0  # seconds; most of it is the machine's
IMAGES = tuple(
    Image(name=f"registry.k8s.io/e2e-test-images/{name}", command=("/bin/sh",), user=user, files=BUSYBOX_CONTENT.files)
    for name, user in (("busybox:1.36.1-1", ""), ("busybox:1.37.0-1", ""), ("nonroot:1.5", "1234"))
)
REFUSED = ("forbidden-sysctl", "node-selector-mismatch", "out-of-cpu")  # while nothing else takes room
STATIC = (
    "image-volume",
    "pod-level-resources",
    "proc-unmasked",
    "user-namespace",
)  # API server 1.20 drops their fields
BY_THE_CLOCK = ("bad-command", "crashloop", "deadline", "poststart-fails", "probes")
LARGE = ("env-sources", "pod-level-resources", "qos-burstable")  # more than the node has for all at once
ALONE = (*BY_THE_CLOCK, *LARGE)
PASSING = ("bad-command", "crashloop", "fails-never", "image-absent", "poststart-fails")


@dataclass(frozen=True)
class Differs:
    """`part`: status, api (what the API server shows of it), events or calls. `what`: a field that is left out, or a
    word that the comparison knows. `only`: the recordings it is about, none = all."""

    part: str
    what: str
    why: str
    only: tuple[str, ...] = ()


V1_20 = "API server 1.20 has no such field"
EXCEPTIONS = (
    Differs("status", "lastTransitionTime", "a time, and one that is not always there"),
    Differs("status", "observedGeneration", "API server 1.20 counts no generations of pods"),
    Differs("status", "user", "containerd 1.6 does not tell it"),
    Differs("status", "token", "no token is projected into a static pod", STATIC),
    Differs(
        "status",
        "resources",
        "the Go kubelet shows the limit of a cgroup that has none as 9007199254740988Ki; we show the pod's own values",
        ("bad-command", "crashloop", "deadline", "fails-never", "poststart-fails", "probes", "run-to-completion"),
    ),
    Differs("api", "hostIPs", V1_20),
    Differs("api", "resources", V1_20),
    Differs("api", "allocatedResources", V1_20),
    Differs("api", "volumeMounts", V1_20),
    Differs("calls", "annotations", "a static pod has those of its source", STATIC),
    Differs("calls", "token", "no token is projected into a static pod", STATIC),
    Differs(
        "calls", "oom_score_adj", "by the machine's memory", ("env-sources", "pod-level-resources", "qos-burstable")
    ),
    Differs("calls", "dns_config", "the machine's resolv.conf", ("dns-default",)),
    Differs(
        "calls",
        "container.seccomp.security.alpha.kubernetes.io/c",
        "API server 1.20 says what the field says in an annotation too",
        ("security-context",),
    ),
    Differs(
        "status",
        "state",
        "recorded at the moment between an end and the back-off after it, which we show at once",
        ("crashloop",),
    ),
    Differs("text", "busybox:1.36.1-1", "two names of one image, of which containerd tells either"),
    Differs("text", "busybox:1.37.0-1", "the other one"),
    Differs("text", "failed to resolve .*", "the runtime's words for a registry it cannot reach", ("image-absent",)),
    Differs("all", "calls until CreateContainer", "containerd 1.6 has no image volumes", ("image-volume",)),
)


def left_out(part: str, name: str) -> frozenset[str]:
    return frozenset(row.what for row in EXCEPTIONS if row.part == part and (not row.only or name in row.only))


async def test_the_table_names_recordings_that_there_are() -> None:
    assert len(NAMES) == 39
    for names in (REFUSED, STATIC, ALONE, PASSING, *(row.only for row in EXCEPTIONS)):
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


class Stage:
    """The cluster, what podsync has published of each pod so far, and what it asked the runtime for."""

    def __init__(self, cluster: Cluster, proxy: CriProxy) -> None:
        self.cluster, self.proxy = cluster, proxy
        self.history: dict[str, list[Object]] = {}  # UID -> statuses
        self.uids: dict[str, str] = {}  # recording -> UID
        self.statuses = NodeBus("recorder", new_manifest(cluster.agent.home.run_dir))
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
        return Place(uid=uid, words=(*words, *addresses(newest)), patterns=patterns(name))

    async def until(self, holds: Callable[[], bool], wanted: Callable[[], tuple[Any, Any]]) -> None:
        """Wait, and where it does not come show the two sides."""

        async def look() -> bool:
            return holds()

        try:
            await self.cluster.wait_for(look, "the recording", PATIENCE)
        except AssertionError:
            show(*wanted())
            raise


def show(ours: Any, theirs: Any) -> None:
    found = differences(ours, theirs)
    assert not found, "\n".join(found)


def addresses(status: Object) -> tuple[tuple[str, str], ...]:
    pod, host = str(status.get("podIP") or "no address"), str(status.get("hostIP") or "no address")
    return ((host, "HOST_IP"), (pod, "POD_IP"))


def pod_name(name: str) -> str:
    """The file of one recording has a shorter name than its pod."""
    return str(recording(name)["submitted"]["metadata"]["name"])


def recorded_place(recorded: Object) -> Place:
    words = (("node1", "NODE"), ("10.96.0.1", "SERVICE_IP"), *addresses(recorded["api_pod"].get("status") or {}))
    return Place(uid=recorded["api_pod"]["metadata"]["uid"], words=words, patterns=patterns(recorded["name"]))


def patterns(name: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(text), "…") for text in left_out("text", name))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    directory: Path = tmp_path_factory.mktemp("c")
    containerd = ProxiedContainerd(directory)
    config = {"clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local"}
    plane = {"feature_gates": {"BoundServiceAccountTokenVolume": True}}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(containerd.stop)
        containerd.start()
        containerd.import_images((PAUSE_CONTENT, *IMAGES))
        proxy = await stack.enter_async_context(CriProxy(containerd.endpoint, directory / "p.sock"))
        containerd.proxy = proxy
        stack.callback(containerd.go_direct)
        running = Cluster(directory, containerd=containerd, config=config, plane=plane)
        cluster = await stack.enter_async_context(running)
        await make_space(cluster)
        stage = await stack.enter_async_context(Stage(cluster, proxy))
        for name in REFUSED:
            await stage.submit(name)
        await cluster.wait_for(lambda: all_ended(cluster), "the pods that are refused", PATIENCE)
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

    await cluster.wait_for(ready, "the namespace's service account", PATIENCE)


@pytest.mark.parametrize("name", NAMES)
async def test_a_recorded_pod(stage: Stage, name: str) -> None:
    recorded = recording(name)
    if name in ALONE:
        await stage.submit(name)
    try:
        if not left_out("all", name):
            await has_been_as_recorded(stage, name, recorded)
            if name not in PASSING and name not in STATIC:
                await is_in_the_api(stage, name, recorded)
        await has_called(stage, name, recorded, deleted=False)
        if not left_out("all", name):
            await has_told(stage, name, recorded)
    finally:
        await stage.delete(name)
    if not left_out("all", name):
        await has_called(stage, name, recorded, deleted=True)


async def has_been_as_recorded(stage: Stage, name: str, recorded: Object) -> None:
    """podsync has published the recorded status at some moment."""
    without = left_out("status", name)
    wanted = plain_status(recorded["api_pod"]["status"], recorded_place(recorded), without)
    seen: list[Any] = []

    def published() -> bool:
        uid = stage.uids.get(pod_name(name), "")
        history = stage.history.get(uid, [])
        while len(seen) < len(history):
            seen.append(plain_status(history[len(seen)], stage.place(name), without))
        return wanted in seen

    await stage.until(published, lambda: (seen[-1] if seen else None, wanted))


async def is_in_the_api(stage: Stage, name: str, recorded: Object) -> None:
    without = left_out("status", name) | left_out("api", name)
    wanted = plain_status(recorded["api_pod"]["status"], recorded_place(recorded), without)
    seen: dict[str, Any] = {}

    async def shown() -> bool:
        pod = await stage.cluster.get_pod(pod_name(name), SPACE)
        seen["status"] = plain_status(pod["status"] if pod else {}, stage.place(name), without)
        return bool(seen["status"] == wanted)

    try:
        await stage.cluster.wait_for(shown, "the API server to show the recorded status", PATIENCE)
    except AssertionError:
        show(seen["status"], wanted)
        raise


async def has_told(stage: Stage, name: str, recorded: Object) -> None:
    """Type, reason, message and field path of the events; how often is chance."""
    wanted = {plain_event(event, recorded_place(recorded)) for event in recorded["events"]}
    seen: set[tuple[str, ...]] = set()

    async def all_told() -> bool:
        seen.clear()
        place = stage.place(name)
        seen.update(plain_event(event, place) for event in await stage.cluster.events_of(stage.name_of(name), SPACE))
        return seen == wanted

    try:
        await stage.cluster.wait_for(all_told, f"the events of {name}", PATIENCE)
    except AssertionError:
        show(sorted(seen - wanted), sorted(wanted - seen))
        raise


async def has_called(stage: Stage, name: str, recorded: Object, *, deleted: bool) -> None:
    """What was asked of the runtime, in which order. A pod that goes on trying was deleted after as many tries as there
    was time for: of it the beginning and the end are compared. The collection of the dead sandbox, up to a minute
    later, is left out."""
    without = left_out("calls", name)

    def told(place: Place, calls: Iterable[Mapping[str, Any]], *, base64_values: bool) -> list[Call]:
        plain = before_collection(Calls(place, without, base64_values=base64_values).told(calls))
        if left_out("all", name):
            return [(method.removesuffix(" failed"), request) for method, request in plain[:2]]
        return without_repeated_probes(plain) if name == "probes" else plain

    until, after = recorded["cri_until_delete"], recorded["cri_after_delete"]
    begins = told(recorded_place(recorded), until, base64_values=True)
    whole = told(recorded_place(recorded), [*until, *after], base64_values=True)

    def both() -> tuple[list[Call], list[Call]]:
        calls = [asdict(call) for call in of_pod(stage.proxy.calls, stage.name_of(name))]
        ours = told(stage.place(name), calls, base64_values=False)
        if not deleted:
            return ours[: len(begins)], begins
        if name not in PASSING:
            return ours, whole
        ends = len(whole) - len(begins)
        parts = [*ours[: len(begins)], *without_attempts(ours[max(len(begins), len(ours) - ends) :])]
        return parts, [*begins, *without_attempts(whole[len(begins) :])]

    await stage.until(lambda: len(differences(*both())) == 0, both)


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
