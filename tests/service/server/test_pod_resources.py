"""The PodResources API over its real socket, as a client of it calls."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from bus.messages.device_plugins import Device, DeviceResource
from bus.messages.podsync import AdmittedPod, GivenDevices, NodeResources, NumaMemory, PodState, PodStatus
from bus.messages.resource_claims import ClaimDevice, ClaimState, PodClaim, PodClaims
from bus.messages.sources import DesiredPod
from services.server.controllers import pod_resources
from services.server.controllers.pod_resources import BURST, SOCKET
from shared.plugin_grpc import pod_resources_v1_pb2 as v1
from shared.plugin_grpc import pod_resources_v1alpha1_pb2 as v1alpha1
from shared.plugin_grpc import serving
from tests.service.server.running import Node, Running, configuration, running
from tests.support.waits.deadline import WAIT_SECONDS


class Client:
    """Calls over one connection."""

    def __init__(self, path: Path) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix:{path}", options=(("grpc.use_local_subchannel_pool", 1),))

    async def call(self, method: str, request: Any, answer: Any) -> Any:
        call = self._channel.unary_unary(
            f"/{method}",
            request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return await call(request, wait_for_ready=True, timeout=60)

    async def list(self) -> Any:
        return await self.call("v1.PodResourcesLister/List", v1.ListPodResourcesRequest(), v1.ListPodResourcesResponse)

    async def older_list(self) -> Any:
        request, answer = v1alpha1.ListPodResourcesRequest(), v1alpha1.ListPodResourcesResponse
        return await self.call("v1alpha1.PodResourcesLister/List", request, answer)

    async def allocatable(self) -> Any:
        request, answer = v1.AllocatableResourcesRequest(), v1.AllocatableResourcesResponse
        return await self.call("v1.PodResourcesLister/GetAllocatableResources", request, answer)

    async def get(self, name: str) -> Any:
        request = v1.GetPodResourcesRequest(pod_name=name, pod_namespace="default")
        return await self.call("v1.PodResourcesLister/Get", request, v1.GetPodResourcesResponse)

    async def close(self) -> None:
        await self._channel.close(None)


@asynccontextmanager
async def calling(path: Path) -> AsyncIterator[Client]:
    client = Client(path)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    (tmp_path / "root" / "pod-resources").mkdir(parents=True)
    async with running(configuration(tmp_path)) as server:
        await opened(server)
        yield server


@pytest.fixture
async def client(server: Running) -> AsyncIterator[Client]:
    async with calling(path_of(server)) as client:
        yield client


def path_of(server: Running) -> Path:
    return Path(server.config.root_dir) / SOCKET


async def opened(server: Running) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not path_of(server).exists():
            await asyncio.sleep(0.01)


def run(server: Running, name: str, phase: str, **spec: Any) -> None:
    node = server.node
    pod = {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}
    node.desired.put(name, DesiredPod(uid=name, source="api", pod=pod))
    node.status.put(name, PodStatus(uid=name, name=name, namespace="default", version=(1, 1), status={"phase": phase}))


async def test_active_pods_are_listed_with_containers_and_sidecars(server: Running, client: Client) -> None:
    init = [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}]
    run(server, "web", "Running", initContainers=init, containers=[{"name": "a"}, {"name": "b"}])
    run(server, "done", "Succeeded", containers=[{"name": "a"}])
    await server.node.network.settle()
    [pod] = (await client.list()).pod_resources
    assert (pod.name, pod.namespace, [each.name for each in pod.containers]) == ("web", "default", ["proxy", "a", "b"])
    assert not any(each.devices or each.cpu_ids or each.memory or each.dynamic_resources for each in pod.containers)
    old = await client.older_list()
    assert [each.name for each in old.pod_resources[0].containers] == ["proxy", "a", "b"]


async def test_a_container_has_the_cpus_and_the_memory_that_podsync_gave_it_alone(
    server: Running, client: Client
) -> None:
    run(server, "web", "Running", containers=[{"name": "own"}, {"name": "shared"}])
    memory: dict[str, tuple[NumaMemory, ...]] = {"own": (NumaMemory(nodes=(0, 1), kind="memory", size=1 << 40),)}
    own = AdmittedPod(
        uid="web", name="web", namespace="default", state=PodState.SYNC, cpus={"own": "2-3,8"}, memory=memory
    )
    server.node.admitted.put("web", own)
    server.node.resources.put(
        "node", NodeResources(capacity={}, allocatable={}, exclusive_cpus="1-8", memory=memory["own"])
    )
    await server.node.network.settle()
    for pod in ((await client.list()).pod_resources[0], (await client.get("web")).pod_resources):
        [first, second] = pod.containers
        assert (list(first.cpu_ids), list(second.cpu_ids), list(second.memory)) == ([2, 3, 8], [], [])
        assert [(m.memory_type, m.size, [node.ID for node in m.topology.nodes]) for m in first.memory] == [
            ("memory", 1 << 40, [0, 1])
        ]
    allocatable = await client.allocatable()
    assert list(allocatable.cpu_ids) == list(range(1, 9))
    assert [(m.memory_type, m.size) for m in allocatable.memory] == [("memory", 1 << 40)]


Entry = tuple[str, list[str], list[int] | None]  # resource, ids of devices, ids of NUMA nodes


def listed_devices(entries: Any) -> list[Entry]:
    return [
        (e.resource_name, list(e.device_ids), [n.ID for n in e.topology.nodes] if e.HasField("topology") else None)
        for e in entries
    ]


async def test_a_container_has_its_devices_once_for_each_numa_node_that_they_are_near_to(
    server: Running, client: Client
) -> None:
    run(server, "web", "Running", containers=[{"name": "own"}, {"name": "plain"}])
    gpus = (
        Device(id="a", healthy=True, nodes=(0,)),
        Device(id="b", healthy=True, nodes=(0, 1)),
        Device(id="c", healthy=False, nodes=(1,)),
        Device(id="d", healthy=True),
    )
    gpu = DeviceResource(resource="example.com/gpu", connected=True, since=1.0, devices=gpus)
    nic = DeviceResource(resource="example.com/nic", connected=False, since=1.0)
    for resource in (nic, gpu):
        server.node.devices.put(resource.resource, resource)
    given = (
        GivenDevices(resource=gpu.resource, ids=("b", "c", "d")),
        GivenDevices(resource=nic.resource, ids=("eth0",)),  # its plugin does not list it any more
    )
    own = AdmittedPod(uid="web", name="web", namespace="default", state=PodState.SYNC, devices={"own": given})
    server.node.admitted.put("web", own)
    await server.node.network.settle()
    held: list[Entry] = [(gpu.resource, ["b"], [0]), (gpu.resource, ["b"], [1]), (gpu.resource, ["c"], [1])]
    held += [(gpu.resource, ["d"], None), (nic.resource, ["eth0"], None)]
    for pod in ((await client.list()).pod_resources[0], (await client.get("web")).pod_resources):
        assert [listed_devices(each.devices) for each in pod.containers] == [held, []]
    old = await client.older_list()
    devices = old.pod_resources[0].containers[0].devices
    assert [(e.resource_name, list(e.device_ids)) for e in devices] == [(name, ids) for name, ids, _ in held]
    allocatable = await client.allocatable()
    healthy = [("a", 0), ("b", 0), ("b", 1), ("d", None)]
    assert listed_devices(allocatable.devices) == [
        (gpu.resource, [name], None if node is None else [node]) for name, node in healthy
    ]


async def test_a_container_has_the_devices_of_its_own_requests_of_prepared_claims(
    server: Running, client: Client
) -> None:
    both = {"claims": [{"name": "gpus", "request": "first"}, {"name": "late"}]}
    containers = [
        {"name": "one", "resources": both},
        {"name": "all", "resources": {"claims": [{"name": "gpus"}]}},
        {"name": "extended"},
        {"name": "none"},
    ]
    run(server, "web", "Running", containers=containers)
    first = ClaimDevice(
        driver="a.com", pool="p", device="d0", requests=("first",), cdi_devices=("a.com/gpu=0", "a.com/x=0")
    )
    second = ClaimDevice(
        driver="a.com", pool="p", device="d1", requests=("second",), share_id="s", cdi_devices=("a.com/gpu=1",)
    )
    third = ClaimDevice(driver="b.com", pool="q", device="n")
    prepared, pending = ClaimState.PREPARED, ClaimState.PENDING
    claims = (
        PodClaim(name="gpus", claim="web-gpus", state=prepared, uid="c1", devices=(first, second, third)),
        PodClaim(name="late", claim="web-late", state=pending, uid="c2"),
        PodClaim(
            name="",
            claim="web-x",
            state=prepared,
            uid="c3",
            devices=(first, second),
            containers={"extended": ("second",)},
        ),
    )
    server.node.claims.put("web", PodClaims(uid="web", claims=claims))
    await server.node.network.settle()
    d0: Any = (["a.com/gpu=0", "a.com/x=0"], "a.com", "p", "d0", None)
    d1: Any = (["a.com/gpu=1"], "a.com", "p", "d1", "s")
    n: Any = ([], "b.com", "q", "n", None)
    expected = {
        "one": [("web-gpus", "default", [d0, n])],
        "all": [("web-gpus", "default", [d0, d1, n])],
        "extended": [("web-x", "default", [d1])],
        "none": [],
    }
    for pod in ((await client.list()).pod_resources[0], (await client.get("web")).pod_resources):
        assert {each.name: listed_claims(each.dynamic_resources) for each in pod.containers} == expected
    server.node.claims.delete("web")
    await server.node.network.settle()
    [pod] = (await client.list()).pod_resources
    assert not any(each.dynamic_resources for each in pod.containers)


def listed_claims(entries: Any) -> list[tuple[str, str, list[Any]]]:
    return [
        (
            entry.claim_name,
            entry.claim_namespace,
            [
                (
                    [cdi.name for cdi in device.cdi_devices],
                    device.driver_name,
                    device.pool_name,
                    device.device_name,
                    device.share_id if device.HasField("share_id") else None,
                )
                for device in entry.claim_resources
            ],
        )
        for entry in entries
    ]


@pytest.mark.long
async def test_the_first_calls_wait_for_the_devices_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root" / "pod-resources").mkdir(parents=True)
    monkeypatch.setattr(pod_resources, "MAX_DEVICES_WAIT_SECONDS", 2 * WAIT_SECONDS)
    node = Node(complete=False)
    async with running(configuration(tmp_path), node) as server, calling(path_of(server)) as client:
        for service in ("sources", "podsync", "pleg"):
            node.mark_complete(service)
        await node.network.settle()
        await opened(server)
        early = asyncio.create_task(client.list())
        async with asyncio.timeout(WAIT_SECONDS):
            while "requests_list{" not in (await server.get(server.read_only + "/metrics"))[1]:
                await asyncio.sleep(0.01)
        await node.network.settle()
        assert not early.done()
        node.mark_complete("volume")
        await node.network.settle()
        assert (await early).pod_resources == []
    node = Node(complete=False)
    monkeypatch.setattr(pod_resources, "MAX_DEVICES_WAIT_SECONDS", 0.05)
    async with running(configuration(tmp_path), node) as server, calling(path_of(server)) as client:
        for service in ("sources", "podsync", "pleg"):
            node.mark_complete(service)
        await opened(server)
        assert (await client.list()).pod_resources == []


async def test_one_pod_is_found_also_when_it_has_ended(server: Running, client: Client) -> None:
    run(server, "done", "Failed", containers=[{"name": "a"}])
    await server.node.network.settle()
    assert (await client.get("done")).pod_resources.containers[0].name == "a"
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await client.get("none")
    assert (error.value.code(), error.value.details()) == (
        grpc.StatusCode.UNKNOWN,
        "pod none in namespace default not found",
    )


async def test_nothing_is_allocatable_without_managers(client: Client) -> None:
    assert await client.allocatable() == v1.AllocatableResourcesResponse()


async def test_calls_beyond_the_rate_are_rejected_and_others_continue(server: Running, client: Client) -> None:
    answers = await asyncio.gather(*(client.list() for _ in range(BURST + 3)), return_exceptions=True)
    rejected = [each for each in answers if isinstance(each, grpc.aio.AioRpcError)]
    assert {(each.code(), each.details()) for each in rejected} == {
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    }
    assert len(rejected) == 3  # the clock of the test does not advance
    server.node.network.clock.advance(1)
    await client.list()


async def test_calls_and_errors_are_counted_by_version(server: Running, client: Client) -> None:
    await client.list()
    with pytest.raises(grpc.aio.AioRpcError):
        await client.get("none")
    _, page = await server.get(server.read_only + "/metrics")
    assert 'kubelet_pod_resources_endpoint_requests_total{server_api_version="v1"} 2' in page
    assert 'kubelet_pod_resources_endpoint_requests_list{server_api_version="v1"} 1' in page
    assert 'kubelet_pod_resources_endpoint_errors_get{server_api_version="v1"} 1' in page


@pytest.mark.parametrize("request_", [b"\xff\xff\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\0" * 100_000])
async def test_a_request_that_is_no_message_is_refused(client: Client, request_: bytes) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await client.call("v1.PodResourcesLister/Get", request_, v1.GetPodResourcesResponse)
    assert error.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
    await client.list()


async def test_an_unknown_method_is_unimplemented(client: Client) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await client.call("v1.PodResourcesLister/Watch", v1.ListPodResourcesRequest(), v1.ListPodResourcesResponse)
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_peer_that_speaks_no_http2_harms_no_other(server: Running, client: Client) -> None:
    _, writer = await asyncio.open_unix_connection(path_of(server))
    writer.write(b"GET / HTTP/1.1\r\n\r\n" + b"\xff" * 100_000)
    assert (await client.list()).pod_resources == []
    writer.close()


async def test_a_successor_takes_the_place_of_a_killed_process_and_of_one_that_ends_later(tmp_path: Path) -> None:
    directory = tmp_path / "root" / "pod-resources"
    directory.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(directory / ".1.sock"))
    (directory / ".1.sock").rename(directory / "kubelet.sock")
    (directory / ".12.sock").touch()
    async with running(configuration(tmp_path)) as first:
        async with calling(path_of(first)) as client:
            await client.list()
        assert [each.name for each in directory.iterdir()] == ["kubelet.sock"]
        before = path_of(first).stat().st_ino
        async with running(configuration(tmp_path)) as second:
            async with asyncio.timeout(WAIT_SECONDS):
                while path_of(second).stat().st_ino == before:
                    await asyncio.sleep(0.01)
            await first.service.stop_listening()
            async with calling(path_of(second)) as client:
                await client.list()


async def test_a_socket_that_cannot_be_opened_is_a_trouble_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "RETRY_SECONDS", 0.05)
    async with running(configuration(tmp_path)) as server:
        assert (await server.get(server.read_only + "/healthz"))[0] == 200
        (tmp_path / "root" / "pod-resources").mkdir(parents=True)
        await opened(server)
        async with calling(path_of(server)) as client:
            await client.list()


async def test_a_pod_with_resources_of_its_own_has_them_as_a_whole_beside_the_parts_of_its_containers(
    server: Running, client: Client
) -> None:
    run(server, "web", "Running", containers=[{"name": "own"}, {"name": "sharing"}])
    admitted = AdmittedPod(
        uid="web",
        name="web",
        namespace="default",
        state=PodState.SYNC,
        cpus={"own": "2-3"},
        pod_cpus="2-5",
        pod_memory=(NumaMemory(nodes=(0,), kind="memory", size=1 << 33),),
        pool_cpus={"sharing": "4-5"},
    )
    server.node.admitted.put("web", admitted)
    await server.node.network.settle()
    for pod in ((await client.list()).pod_resources[0], (await client.get("web")).pod_resources):
        assert list(pod.cpu_ids) == [2, 3, 4, 5]
        assert [(m.memory_type, m.size, [node.ID for node in m.topology.nodes]) for m in pod.memory] == [
            ("memory", 1 << 33, [0])
        ]
        assert [(list(each.cpu_ids), list(each.memory)) for each in pod.containers] == [([2, 3], []), ([], [])]
    # The numbers of the fields: cpu_ids 4, memory 5.
    assert v1.PodResources(cpu_ids=[7]).SerializeToString() == b"\x22\x01\x07"
    assert v1.PodResources(memory=[v1.ContainerMemory()]).SerializeToString() == b"\x2a\x00"
