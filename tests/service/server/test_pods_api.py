"""The Pods API over its real socket, as a client of it calls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from bus.messages.podsync import PodStatus
from bus.messages.sources import ApiPodStatus, DesiredPod
from services.server.controllers import pods_api
from services.server.controllers.pods_api import BURST, SOCKET
from shared.plugin_grpc import pods_v1alpha1_pb2 as v1alpha1
from shared.plugin_grpc.pod_encoding import decode_pod
from tests.service.server.running import Node, Running, configuration, running
from tests.support.waits.deadline import WAIT_SECONDS

ADDED, MODIFIED, DELETED = v1alpha1.ADDED, v1alpha1.MODIFIED, v1alpha1.DELETED
SYNCED = v1alpha1.INITIAL_SYNC_COMPLETE


class Client:
    """Calls over one connection."""

    def __init__(self, path: Path) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix:{path}", options=(("grpc.use_local_subchannel_pool", 1),))

    async def list(self) -> list[Any]:
        answer = await self._call("ListPods", v1alpha1.ListPodsRequest(), v1alpha1.ListPodsResponse)
        return [decode_pod(pod) for pod in answer.pods]

    async def get(self, uid: str) -> Any:
        answer = await self._call("GetPod", v1alpha1.GetPodRequest(podUID=uid), v1alpha1.GetPodResponse)
        return decode_pod(answer.pod)

    def watch(self) -> "Watch":
        call = self._channel.unary_stream(
            "/v1alpha1.Pods/WatchPods",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=v1alpha1.WatchPodsEvent.FromString,
        )
        return Watch(call(v1alpha1.WatchPodsRequest(), wait_for_ready=True))

    async def _call(self, method: str, request: Any, answer: Any) -> Any:
        call = self._channel.unary_unary(
            f"/v1alpha1.Pods/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return await call(request, wait_for_ready=True, timeout=WAIT_SECONDS)

    async def close(self) -> None:
        await self._channel.close(None)


class Watch:
    """One open watch."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def next(self) -> tuple[int, Any]:
        """Return type and pod of the next event."""
        async with asyncio.timeout(WAIT_SECONDS):
            event = await self.call.read()
        return event.type, decode_pod(event.pod)

    async def named(self, count: int) -> list[tuple[int, str]]:
        """Return types and names of the next events."""
        return [(kind, pod.metadata.name) for kind, pod in [await self.next() for _ in range(count)]]


@asynccontextmanager
async def serving(directory: Path, node: Node | None = None, **more: Any) -> AsyncIterator[tuple[Running, Client]]:
    (directory / "root" / "pods-api").mkdir(parents=True, exist_ok=True)
    (directory / "root" / "pod-resources").mkdir(exist_ok=True)
    config = configuration(directory, feature_gates={"PodsAPI": True}, **more)
    async with running(config, node) as server:
        path = directory / "root" / SOCKET
        async with asyncio.timeout(WAIT_SECONDS):
            while not path.exists():
                await asyncio.sleep(0.01)
        client = Client(path)
        try:
            yield server, client
        finally:
            await client.close()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Running, Client]]:
    async with serving(tmp_path) as both:
        yield both


def desire(node: Node, name: str, **spec: Any) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}}
    node.desired.put(f"uid-{name}", DesiredPod(uid=f"uid-{name}", source="api", pod={**pod, "spec": spec}))


def report(node: Node, name: str, phase: str, number: int = 1) -> None:
    uid = f"uid-{name}"
    status = PodStatus(uid=uid, name=name, namespace="default", version=(1, number), status={"phase": phase})
    node.status.put(uid, status)


async def test_pods_have_their_spec_and_the_status_of_this_node(served: tuple[Running, Client]) -> None:
    server, client = served
    for name in ("b", "a"):
        desire(server.node, name, containers=[{"name": "c", "image": "i"}], nodeName="node-1")
        report(server.node, name, "Running")
    known = ApiPodStatus(resource_version="7", status={"phase": "Pending"})
    server.node.api_statuses.put("uid-a", known)
    await server.node.network.settle()
    pods = await client.list()
    assert [pod.metadata.uid for pod in pods] == ["uid-a", "uid-b"]
    assert [(pod.spec.containers[0].image, pod.spec.nodeName, pod.status.phase) for pod in pods] == [
        ("i", "node-1", "Running")
    ] * 2
    assert (await client.get("uid-a")).metadata.resourceVersion == "7"


async def test_the_word_of_the_api_server_makes_no_pod_ready(served: tuple[Running, Client]) -> None:
    server, client = served
    desire(server.node, "a")
    conditions = [{"type": "Ready", "status": "True", "reason": "x"}, {"type": "PodScheduled", "status": "True"}]
    known = ApiPodStatus(resource_version="7", status={"phase": "Running", "conditions": conditions})
    server.node.api_statuses.put("uid-a", known)
    desire(server.node, "b")
    await server.node.network.settle()
    ready, scheduled = (await client.get("uid-a")).status.conditions
    assert (ready.status, ready.reason, scheduled.status) == ("False", "ContainersNotReady", "True")
    assert (await client.get("uid-b")).status.phase == "Pending"


async def test_a_watch_has_the_pods_the_mark_and_then_each_change(served: tuple[Running, Client]) -> None:
    server, client = served
    desire(server.node, "a")
    await server.node.network.settle()
    watch = client.watch()
    assert await watch.named(2) == [(ADDED, "a"), (SYNCED, "")]
    desire(server.node, "b", containers=[{"name": "c"}])
    await server.node.network.settle()
    assert await watch.named(1) == [(ADDED, "b")]
    report(server.node, "b", "Running")
    await server.node.network.settle()
    kind, pod = await watch.next()
    assert (kind, pod.status.phase) == (MODIFIED, "Running")
    server.node.desired.delete("uid-b")
    await server.node.network.settle()
    kind, pod = await watch.next()
    assert (kind, pod.metadata.namespace, pod.metadata.name, pod.metadata.uid) == (DELETED, "default", "b", "uid-b")
    assert not pod.spec.containers


async def test_a_slow_watch_misses_states_and_never_the_newest_one(served: tuple[Running, Client]) -> None:
    server, client = served
    desire(server.node, "a", containers=[{"name": "c", "image": "i" * 1_000_000}])
    await server.node.network.settle()
    watch = client.watch()
    assert await watch.named(2) == [(ADDED, "a"), (SYNCED, "")]
    for number in range(50):  # more than the buffers of a connection hold
        report(server.node, "a", f"phase-{number}", number)
        await server.node.network.settle()
    desire(server.node, "z")
    await server.node.network.settle()
    phases, name = [], "a"
    while name != "z":
        _, pod = await watch.next()
        name = pod.metadata.name
        phases.append(pod.status.phase)
    assert phases[-2] == "phase-49"
    assert len(phases) < 50


async def test_each_call_is_refused_until_sources_and_podsync_have_listed_all_pods(tmp_path: Path) -> None:
    node = Node(complete=False)
    async with serving(tmp_path, node) as (_, client):
        desire(node, "a")
        node.mark_complete("sources")
        await node.network.settle()
        for call in (client.list(), client.get("uid-a"), client.watch().call.read()):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await call
            assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert error.value.details() == "Kubelet is initializing"
        node.mark_complete("podsync")
        await node.network.settle()
        assert [pod.metadata.name for pod in await client.list()] == ["a"]


async def test_calls_beyond_the_rate_are_rejected_and_watches_beyond_their_number(
    served: tuple[Running, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client = served
    answers = await asyncio.gather(*(client.list() for _ in range(BURST + 3)), return_exceptions=True)
    rejected = [each for each in answers if isinstance(each, grpc.aio.AioRpcError)]
    assert {(each.code(), each.details()) for each in rejected} == {
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    }
    assert len(rejected) == 3  # the clock of the test does not advance
    monkeypatch.setattr(pods_api, "MAX_WATCHES", 2)
    watches = [client.watch(), client.watch()]
    for watch in watches:
        assert await watch.named(1) == [(SYNCED, "")]
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await client.watch().call.read()
    assert (error.value.code(), error.value.details()) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "2 watches are open: no more at the same time",
    )


async def test_calls_are_counted_with_how_they_ended(served: tuple[Running, Client]) -> None:
    server, client = served
    await client.list()
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await client.get("none")
    assert (error.value.code(), error.value.details()) == (grpc.StatusCode.NOT_FOUND, "pod with UID none not found")
    watch = client.watch()
    assert await watch.named(1) == [(SYNCED, "")]
    watch.call.cancel()
    ended = 'kubelet_pod_requests_watch_total{server_api_version="v1alpha1",status_code="Canceled"} 1'
    async with asyncio.timeout(WAIT_SECONDS):
        while ended not in (page := (await server.get(server.read_only + "/metrics"))[1]):
            await asyncio.sleep(0.01)
    assert 'kubelet_pod_requests_list_total{server_api_version="v1alpha1",status_code="OK"} 1' in page
    assert 'kubelet_pod_requests_get_total{server_api_version="v1alpha1",status_code="NotFound"} 1' in page
    assert 'kubelet_pod_requests_total{server_api_version="v1alpha1",status_code="Canceled"} 1' in page


async def test_a_watch_ends_at_a_hand_over_and_the_successor_has_the_pods(tmp_path: Path) -> None:
    async with serving(tmp_path) as (first, client):
        watch = client.watch()
        assert await watch.named(1) == [(SYNCED, "")]
        await first.service.stop_listening()
        with pytest.raises(grpc.aio.AioRpcError):
            await watch.next()
    node = Node()
    async with serving(tmp_path, node) as (_, client):
        desire(node, "a")
        await node.network.settle()
        assert await client.watch().named(2) == [(ADDED, "a"), (SYNCED, "")]


async def test_without_the_gate_there_is_no_socket(tmp_path: Path) -> None:
    for name in ("pods-api", "pod-resources"):
        (tmp_path / "root" / name).mkdir(parents=True)
    async with running(configuration(tmp_path, feature_gates={"PodsAPI": False})):
        async with asyncio.timeout(WAIT_SECONDS):
            while not (tmp_path / "root/pod-resources/kubelet.sock").exists():
                await asyncio.sleep(0.01)
        assert list((tmp_path / "root/pods-api").iterdir()) == []
