"""Reloads under load: pods come and go and exec sessions are open while the configuration changes again and again."""

import asyncio
import itertools
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
import yaml

from shared.config.loader import load_effective
from tests.service.server.spdy_peer import SpdyPeer
from tests.support.agents.agent import NODE
from tests.support.agents.world import World, busybox_pod
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

ANONYMOUS = {
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
}
STABLE = 3  # pods that have to run on without a restart
# Settings that change in turn, with the service that restarts for each.
TURNS = (
    ("containerLogMonitorInterval", "podsync"),
    ("volumeStatsAggPeriod", "pleg"),
    ("fileCheckFrequency", "sources"),
    ("nodeStatusReportFrequency", "status"),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with World(config=ANONYMOUS) as world:
        for number in range(STABLE):
            world.put_manifest(f"stable-{number}", busybox_pod(f"stable-{number}"))
        await world.wait_served(*(f"stable-{number}" for number in range(STABLE)))
        yield world


def change(world: World, key: str, value: str) -> None:
    """Change a key of the configuration file, and nothing else, and reload."""
    file = world.home.path / "kubelet.yaml"
    kubelet, *others = yaml.safe_load_all(file.read_text())
    file.write_text(yaml.safe_dump_all([kubelet | {key: value}, *others]))
    world.kill("bootstrap", signal.SIGHUP)


async def instances(world: World) -> dict[str, list[str]]:
    """The containers of each stable pod, by id."""
    found = {}
    for number in range(STABLE):
        pod = await world.runtime_pod(f"stable-{number}")
        assert pod is not None
        found[f"stable-{number}"] = sorted(container.id for container in pod.containers)
    return found


async def session(world: World, number: int) -> SpdyPeer:
    """An open `cat` in a stable pod: streams 1 error, 3 stdin, 5 stdout."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    target = f"/exec/default/stable-{number % STABLE}-{NODE}/main?command=cat&input=1&output=1"
    peer = await SpdyPeer.connect(world.port, target, "v4.channel.k8s.io", tls=context)
    for name in ("error", "stdin", "stdout"):
        await peer.open(("streamType", name))
    await echoes(peer, b"started\n")
    return peer


async def echoes(peer: SpdyPeer, line: bytes) -> None:
    await peer.send(3, line)
    await peer.until(lambda: peer.received[5].endswith(line), 2 * WAIT_SECONDS)


async def churn(world: World, pods: int) -> None:
    """Add and remove pods until cancelled, then remove all of them."""
    names = [f"churn-{number}" for number in range(pods)]
    present: set[str] = set()
    try:
        for name in itertools.cycle(names):
            if name in present:
                present.discard(name)
                world.remove_manifest(name)
            else:
                present.add(name)
                world.put_manifest(name, busybox_pod(name))
            await asyncio.sleep(0.5)  # the load: a change every half second
    finally:
        for name in present:
            world.remove_manifest(name)


@pytest.mark.parametrize(
    ("reloads", "pods", "sessions"),
    [(12, 4, 5), pytest.param(100, 30, 20, marks=[pytest.mark.night, pytest.mark.timeout(3600)])],
)
async def test_reloads_restart_no_container_and_end_no_session(
    world: World, reloads: int, pods: int, sessions: int
) -> None:
    before, server, bootstrap = await instances(world), world.pid_of("server"), world.pid_of("bootstrap")
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(await session(world, number)) for number in range(sessions)]
        load = asyncio.create_task(churn(world, pods))
        try:
            for number in range(reloads):
                key, service = TURNS[number % len(TURNS)]
                old = world.pid_of(service)
                change(world, key, f"{100 + number}s")
                await world.wait_back(service, old, 2 * WAIT_SECONDS)
        finally:
            load.cancel()
            await asyncio.gather(load, return_exceptions=True)
        assert not [peer for peer in peers if peer.closed]
        for number, peer in enumerate(peers):
            await echoes(peer, f"line {number}\n".encode())
    assert (world.pid_of("server"), world.pid_of("bootstrap")) == (server, bootstrap)
    for number in range(pods):
        await world.wait_gone(f"churn-{number}", 3 * WAIT_SECONDS)
    assert await instances(world) == before


async def test_a_reload_of_the_server_leaves_the_pods_and_the_other_services(world: World) -> None:
    before = await instances(world)
    pids = {service: world.pid_of(service) for service in ("sources", "volume", "pleg", "podsync", "status", "server")}
    change(world, "streamingConnectionIdleTimeout", "1h")
    await world.wait_back("server", pids["server"])
    assert {service: world.pid_of(service) for service in pids if service != "server"} == {
        service: pid for service, pid in pids.items() if service != "server"
    }
    assert load_effective(str(world.home.run_dir)).streaming_connection_idle_timeout == 3600.0
    assert await instances(world) == before
    await world.wait_served("stable-0")  # the first beat comes before the ports are open
    async with await session(world, 0) as peer:
        await echoes(peer, b"hello\n")
