"""Thousands of open streams that carry nothing: what they cost server, and that each of them still works."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests.service.server.spdy_peer import SpdyPeer
from tests.support.agents.agent import NODE
from tests.support.clusters.cluster import Cluster
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [
    pytest.mark.root,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(900),
]

AT_ONCE = 20  # streams that are opened beside each other: the runtime starts a process for each exec
KIBIBYTES = 160  # of server for one stream, both of its connections and TLS included
WAIT = 5 * WAIT_SECONDS  # seconds until all processes of execs have ended
START_WAIT = 3 * WAIT_SECONDS  # seconds for one to start or to answer
SERVE = "mkdir /www; echo hello > /www/index.html; exec httpd -f -p 8080 -h /www"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def tls_of(cluster: Cluster) -> ssl.SSLContext:
    """That of the API server: connections of clients without a certificate are few."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(*cluster.plane.kubelet_client_pair)
    return context


async def forward(port: int, pod: str, tls: ssl.SSLContext) -> SpdyPeer:
    return await SpdyPeer.connect(port, f"/portForward/default/{pod}", "portforward.k8s.io", tls=tls)


async def forwards(peer: SpdyPeer) -> None:
    error = await peer.open(("streamType", "error"), ("port", "8080"), ("requestID", "0"))
    data = await peer.open(("streamType", "data"), ("port", "8080"), ("requestID", "0"))
    await peer.send(error, b"", fin=True)
    await peer.send(data, b"GET /index.html HTTP/1.0\r\n\r\n", fin=True)
    assert (await peer.finished(data)).endswith(b"hello\n")


async def execute(port: int, pod: str, tls: ssl.SSLContext) -> SpdyPeer:
    target = f"/exec/default/{pod}/main?command=cat&input=1&output=1"
    peer = await SpdyPeer.connect(port, target, "v4.channel.k8s.io", tls=tls)
    for name in ("error", "stdin", "stdout"):  # streams 1, 3 and 5
        await peer.open(("streamType", name))
    await peer.send(3, b"started\n")  # the runtime accepts streams before it starts the process
    await peer.until(lambda: peer.received[5] == b"started\n", START_WAIT)
    return peer


async def echoes(peer: SpdyPeer) -> None:
    await peer.send(3, b"hello\n")
    await peer.until(lambda: peer.received[5].endswith(b"hello\n"), START_WAIT)


@pytest.mark.parametrize(
    ("open_one", "works", "count"),
    [
        pytest.param(forward, forwards, 2000, id="2000 port-forwards"),
        pytest.param(execute, echoes, 100, id="100 execs"),
    ],
)
async def test_idle_streams_cost_little_and_work_afterwards(
    cluster: Cluster,
    open_one: Callable[[int, str, ssl.SSLContext], Awaitable[SpdyPeer]],
    works: Callable[[SpdyPeer], Awaitable[None]],
    count: int,
) -> None:
    pod = f"{open_one.__name__}-{count}"  # one of its own: the shim is busy while hundreds of processes end
    server = cluster.pod(pod, "sh", "-c", SERVE)
    server["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    await cluster.create(server)
    await cluster.wait_served(pod)
    tls, pid, port = tls_of(cluster), cluster.agent.pid_of("server"), cluster.agent.port
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(await open_one(port, pod, tls))]
        await works(peers.pop())  # what the first stream needs is not counted
        memory, files, places = resident(pid), open_files(pid), asyncio.Semaphore(AT_ONCE)

        async def one() -> None:
            async with places:
                peers.append(await stack.enter_async_context(await open_one(port, pod, tls)))

        await asyncio.gather(*(one() for _ in range(count)))
        grown = (resident(pid) - memory) / count
        print(f"\n{count} streams: {grown:.1f} KiB of server for each, {open_files(pid) - files} descriptors")
        assert not [peer for peer in peers if peer.closed]
        await asyncio.to_thread(cluster.plane.kubectl, "get", "--raw", f"/api/v1/nodes/{NODE}/proxy/pods")
        for peer in (peers[0], peers[count // 2], peers[-1]):
            await works(peer)
        assert grown <= KIBIBYTES
    await cluster.agent.wait_for(lambda: open_files(pid) <= files + 10, "the descriptors to be closed", WAIT)
    assert cluster.agent.pid_of("server") == pid


def resident(pid: int) -> int:
    """KiB."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmRSS")).split()[1])


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
