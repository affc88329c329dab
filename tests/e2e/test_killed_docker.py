"""dockerd is killed before, during and after each request of a pod's start and stop, with and without live-restore.

The agent and its shim go on by themselves once dockerd is back. What is compared with a run without a kill: the pod's
status, Docker's containers, networks and their addresses, mounts, processes, and the log line by line.
"""

import asyncio
import json
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import pytest
import pytest_asyncio

from services.dockershim.adapters.engine import Engine
from services.volume.adapters.mounts import mount_table
from tests.support.agents.agent import NODE
from tests.support.agents.world import World, busybox_pod
from tests.support.runtime.engine_proxy import MOMENTS, EngineProxy
from tests.support.waits.deadline import WAIT_SECONDS
from tools import leftovers

pytestmark = [pytest.mark.root, pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="module")]

START = (
    "list",
    "inspect image",
    "create sandbox",
    "start sandbox",
    "inspect sandbox",
    "create container",
    "start container",
    "inspect container",
)
STOP = ("stop container", "inspect container", "remove container", "list of a sandbox", "stop sandbox")
LOOKS = {"list", "inspect sandbox", "inspect container", "inspect image", "images/json", "info", "system/df", "version"}
EACH_DAY = {("start container", "during", False), ("stop container", "during", True)}  # the others at night
# Counts its processes in a file, and its lines: one at its start, one at its end.
SCRIPT = "trap 'echo last; exit 0' TERM; echo started >> /data/starts; echo first; while :; do sleep 0.1; done"


def cases(steps: tuple[str, ...]) -> list[Any]:
    """Each step before, during and after its request, with live-restore and without."""
    every = [(step, moment, live) for step in steps for moment in MOMENTS for live in (False, True)]
    return [pytest.param(*one, marks=[] if one in EACH_DAY else pytest.mark.night) for one in every]


class Node:
    """The world with the proxy before its Docker."""

    def __init__(self, world: World, proxy: EngineProxy) -> None:
        assert world.docker is not None
        self.world, self.proxy, self.docker = world, proxy, world.docker
        self.at_rest = self.outside()

    async def start(self, name: str) -> None:
        """Give the pod to the agent."""
        data = self.world.home.path / "data" / name
        data.mkdir(parents=True)
        pod = busybox_pod(name, "sh", "-c", SCRIPT, grace=5)
        pod["spec"]["volumes"] = [{"name": "data", "hostPath": {"path": str(data)}}]
        pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        self.world.reset_start_counts()
        self.world.put_manifest(name, pod)

    async def bring_back(self, *, live_restore: bool) -> None:
        """Wait until dockerd was killed, and start it again."""
        await asyncio.wait_for(self.proxy.killed.wait(), 2 * WAIT_SECONDS)
        self.docker.live_restore = live_restore
        await asyncio.to_thread(self.docker.start)

    def starts(self, name: str) -> int:
        """How many processes of the pod's container have run their first line."""
        file = self.world.home.path / "data" / name / "starts"
        return len(file.read_text().splitlines()) if file.exists() else 0

    @asynccontextmanager
    async def pod(self, name: str) -> AsyncIterator[None]:
        """Of a pod of this name nothing runs at the end, also where the test has failed."""
        try:
            yield
        finally:
            await self.end(name)

    async def in_docker(self, name: str) -> list[tuple[str, str]]:
        """Docker's containers of the pod, of all pods where there is no name: the name of each in its pod, POD for a
        sandbox, and its state."""
        engine = Engine(self.docker.endpoint)
        try:
            names = [(listed["Names"][0].split("_"), listed["State"]) for listed in await engine.containers([])]
        finally:
            await engine.close()
        return sorted((words[1], state) for words, state in names if name in ("", words[2].removesuffix(f"-{NODE}")))

    async def log_in_docker(self, name: str) -> Path:
        """Return the file in which Docker keeps the log of the pod's container."""
        engine = Engine(self.docker.endpoint)
        try:
            [listed] = [one for one in await engine.containers([]) if one["Names"][0].startswith(f"/k8s_main_{name}-")]
            return Path((await engine.inspect(listed["Id"]))["LogPath"])
        finally:
            await engine.close()

    def networks(self) -> tuple[int, int]:
        """How many sandboxes have a record of a network, and how many addresses are in use."""
        records = self.world.home.path / "dockershim" / "networks"
        addresses = self.docker.directory / "addresses" / self.docker.bridge
        return len(list(records.iterdir())), len(list(addresses.glob("10.*")))

    def outside(self) -> tuple[list[str], int]:
        """What a container has on the machine beside Docker: mounts, and processes of containerd that hold it."""
        mounts = [mount.path for mount in mount_table() if self.world.home.path in Path(mount.path).parents]
        return sorted(mounts), len(leftovers.shims_of(self.docker.directory))

    async def runs(self, name: str) -> tuple[int, Path]:
        """Wait until the pod is as after a start without a kill, but for restarts; return their count, and its log."""
        await self.world.wait_served(name, seconds=3 * WAIT_SECONDS)

        async def whole() -> bool:
            running = [kind for kind, state in await self.in_docker(name) if state == "running"]
            return running == ["POD", "main"] and self.networks() == (1, 1)

        await self.world.wait_for(whole, "one sandbox with one network and one container", 2 * WAIT_SECONDS)
        pod = await self.world.pod(name)
        assert pod is not None and pod["status"]["phase"] == "Running"
        [container] = pod["status"]["containerStatuses"]
        log = self.world.home.path / "log/pods" / f"default_{name}-{NODE}_{pod['metadata']['uid']}" / "main"
        log = log / f"{container['restartCount']}.log"
        await self.world.wait_for(log.read_text, "the first line")
        return container["restartCount"], log

    async def end(self, name: str) -> None:
        """End the pod, and wait until nothing of it is left but sandboxes without processes, which are removed a minute
        later."""
        if self.world.home.manifests.joinpath(f"{name}.yaml").exists():
            self.world.remove_manifest(name)

        async def gone() -> bool:
            left = await self.in_docker(name)
            return {*left} <= {("POD", "exited")} and self.networks() == (0, 0) and not self.outside()[1]

        def seen() -> str:
            return f"the end of {name}: networks {self.networks()}, outside of Docker {self.outside()}"

        await self.world.wait_for(gone, seen, 2 * WAIT_SECONDS)


def texts(log: Path | IO[str]) -> list[str]:
    """The lines of a CRI log."""
    content = log.read_text() if isinstance(log, Path) else log.read()
    return [line.split(" ", 3)[3] for line in content.splitlines()]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node() -> AsyncIterator[Node]:
    with tempfile.TemporaryDirectory(prefix="bkp", dir="/tmp") as directory:
        world = World(docker=True)
        assert world.docker is not None
        async with EngineProxy(world.docker.socket, Path(directory) / "proxy.sock", world.docker.kill) as proxy:
            world.docker.agents_endpoint = proxy.endpoint
            async with world:
                yield Node(world, proxy)


async def test_the_requests_of_a_start_and_a_stop_are_those_at_which_dockerd_is_killed(node: Node) -> None:
    async with node.pod("whole"):
        node.proxy.requests.clear()
        await node.start("whole")
        restarts, log = await node.runs("whole")
        assert (restarts, node.starts("whole"), texts(log)) == (0, 1, ["first"])
        started = {*node.proxy.requests}
        with log.open() as kept:
            node.proxy.requests.clear()
            await node.end("whole")
            assert texts(kept) == ["first", "last"]
    assert started - {*START} <= LOOKS
    assert {*node.proxy.requests} - {*STOP} <= LOOKS


@pytest.mark.parametrize(("request_name", "moment", "live_restore"), cases(START))
async def test_a_start_in_which_dockerd_is_killed_ends_as_without(
    node: Node, request_name: str, moment: str, live_restore: bool
) -> None:
    name = f"start-{START.index(request_name)}-{moment}-{int(live_restore)}"
    async with node.pod(name):
        node.proxy.kill_at(request_name, moment)
        await node.start(name)
        await node.bring_back(live_restore=live_restore)
        restarts, log = await node.runs(name)
        # Without live-restore dockerd ends the sandbox when it is back, and a container in it: the next one counts as a
        # restart, as the kubelet counts it, also where the first one was created and not yet started.
        unstarted = restarts + 1 - node.starts(name)
        assert (restarts, unstarted) in ([(0, 0)] if live_restore else [(0, 0), (1, 0), (1, 1)])
        assert texts(log) == ["first"]


@pytest.mark.parametrize(("request_name", "moment", "live_restore"), cases(STOP))
async def test_a_stop_in_which_dockerd_is_killed_ends_as_without(
    node: Node, request_name: str, moment: str, live_restore: bool
) -> None:
    name = f"stop-{STOP.index(request_name)}-{moment}-{int(live_restore)}"
    async with node.pod(name):
        await node.start(name)
        restarts, log = await node.runs(name)
        assert (restarts, node.starts(name)) == (0, 1)
        with log.open() as kept, (await node.log_in_docker(name)).open() as of_docker:
            node.proxy.kill_at(request_name, moment)
            node.world.remove_manifest(name)
            await node.bring_back(live_restore=live_restore)
            await node.end(name)
            written = [json.loads(line)["log"].removesuffix("\n") for line in of_docker]
            # Docker does not read what a container has written where it ends while dockerd is dead (docs/docker.md).
            assert written == ["first", "last"] or (moment == "during" and written == ["first"])
            assert (node.starts(name), texts(kept)) == (1, written)


@pytest.mark.night
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_removal_of_sandboxes_in_which_dockerd_is_killed_leaves_nothing_of_any_pod(
    node: Node, moment: str
) -> None:
    name, logs = f"last-{moment}", node.world.home.path / "log/pods"
    async with node.pod(name):
        await node.start(name)
        await node.runs(name)

    async def gone() -> bool:
        return not await node.in_docker("") and not list(logs.iterdir())

    node.proxy.kill_at("remove sandbox", moment)
    await node.bring_back(live_restore=False)
    await node.world.wait_for(gone, "the sandboxes to be removed", 2 * WAIT_SECONDS)
    assert node.outside() == node.at_rest


@pytest.mark.night
async def test_a_dockerd_that_hangs_is_named_and_pods_go_on_and_start_when_it_answers_again() -> None:
    async with World(docker=True, config={"runtimeRequestTimeout": "5s"}) as world:
        assert world.docker is not None
        world.put_manifest("runs", busybox_pod("runs"))
        before = (await world.wait_running("runs")).containers[0]
        world.docker.signal(signal.SIGSTOP)
        try:
            text = "the container runtime does not answer"
            await world.wait_for(lambda: text in world.log_of("pleg"), "pleg to name it", 2 * WAIT_SECONDS)
            world.put_manifest("later", busybox_pod("later"))
        finally:
            world.docker.signal(signal.SIGCONT)
        await world.wait_served("runs", "later", seconds=2 * WAIT_SECONDS)
        assert (await world.wait_running("runs")).containers[0].id == before.id
        text = "the container runtime answers again"
        await world.wait_for(lambda: text in world.log_of("pleg"), "pleg to log the return")
        assert world.log_of("pleg").count(text) == 1
