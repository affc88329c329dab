"""pleg on uvloop over a real containerd: exits are seen at once, and a killed containerd costs no observation."""

import asyncio
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from bus.interface import FollowedStream
from bus.messages.podsync import PodProbes, PodStatus
from bus.messages.streams import NODE_IMAGES, PODS_PROBES, PODS_STATUS, PROBES_RESULTS, RUNTIME_PODS, events_of
from services.frame.launch import Context
from services.pleg.service import build
from shared.config.effective import EffectiveConfig
from shared.cri.client import CriRuntime
from shared.cri.interface import Message
from shared.model.runtime import Container, ContainerState, RuntimePod, SandboxState
from shared.time.clock import SystemClock
from tests.fakes.memory_bus import MemoryBus, MemoryNetwork
from tests.support.runtime.containerd import PrivateContainerd, started_containerd
from tests.support.runtime.contract_world import World, look, started
from tests.support.waits.deadline import SLOWNESS, WAIT_SECONDS
from tools.oci_image import BUSYBOX_IMAGE

pytestmark = pytest.mark.root

ROUNDS = 5
SOON = {"periodSeconds": 1, "timeoutSeconds": 60}  # no probe fails because the machine is slow


@pytest.fixture(scope="module")
def containerd() -> Iterator[PrivateContainerd]:
    with started_containerd() as containerd:
        yield containerd


class PlegOnContainerd(World):
    """A running pleg, a follower of its pods, and podsync's hand on the runtime."""

    image = BUSYBOX_IMAGE

    def __init__(self, runtime: CriRuntime, directory: Path) -> None:
        self.runtime, self.directory = runtime, directory
        self.network = MemoryNetwork()
        self.podsync: MemoryBus = self.network.bus("podsync")
        self.changed = asyncio.Event()
        self.pods: FollowedStream[RuntimePod] = self.podsync.follow(RUNTIME_PODS, lambda change: self.changed.set())
        self.statuses = self.podsync.own(PODS_STATUS)
        self.probed = self.podsync.own(PODS_PROBES)
        self.probes = self.podsync.follow(PROBES_RESULTS, lambda change: self.changed.set())
        self.images = self.podsync.follow(NODE_IMAGES, lambda change: self.changed.set())
        self.events = self.podsync.follow(events_of("pleg"), lambda change: self.changed.set())
        self.version = 0

    def kill(self, container: Container) -> None:
        os.kill(container.pid, signal.SIGKILL)

    def name(self, pod: Message, *container_ids: str) -> None:
        """Publish a status that speaks of these containers, as podsync does right after StartContainer."""
        self.version += 1
        uid = pod["metadata"]["uid"]
        status: dict[str, Any] = {
            "containerStatuses": [
                {"name": "c", "containerID": f"containerd://{i}", "started": True} for i in container_ids
            ]
        }
        self.statuses.put(
            uid,
            PodStatus(
                uid=uid,
                name="pod",
                namespace="rec",
                version=(1, self.version),
                status=status,
                container_ids=container_ids,
            ),
        )

    def admit(self, pod: Message, **probes: Any) -> None:
        """Publish the spec of a pod whose container `c` has these probes."""
        uid = pod["metadata"]["uid"]
        spec = {"containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}], **probes}]}
        self.probed.put(uid, PodProbes(name="pod", namespace="rec", spec=spec))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    @property
    def event_texts(self) -> set[str]:
        """Return the messages of pleg's events."""
        return {event.message for event in self.events.state.values()}

    def state(self, pod: Message) -> ContainerState | None:
        seen = self.pods.state.get(pod["metadata"]["uid"])
        return seen.containers[0].state if seen and seen.containers else None


@asynccontextmanager
async def pleg_on(containerd: PrivateContainerd, directory: Path) -> AsyncIterator[PlegOnContainerd]:
    runtime = CriRuntime(containerd.endpoint, request_timeout=60)
    world = PlegOnContainerd(runtime, directory)
    config = EffectiveConfig(
        node_name="node1",
        root_dir=str(directory),
        run_dir=str(directory),
        log_dir=str(directory),
        cert_dir=str(directory),
        container_runtime_endpoint=containerd.endpoint,
    )
    bus = world.network.bus("pleg")
    pleg = build(Context("pleg", config, bus, SystemClock(), asyncio.Event()))
    await world.podsync.start()
    await bus.start()
    task = asyncio.create_task(pleg.run())
    try:
        await world.until(lambda: world.pods.complete)
        yield world
        for pod in (await runtime.observe()).values():
            for sandbox in pod.sandboxes:
                await runtime.stop_pod_sandbox(sandbox.id)
                await runtime.remove_pod_sandbox(sandbox.id)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runtime.close()


def test_a_start_that_a_status_names_and_an_exit_are_published_in_milliseconds(
    containerd: PrivateContainerd, tmp_path: Path
) -> None:
    async def check() -> None:
        starts: list[float] = []
        exits: list[float] = []
        async with pleg_on(containerd, tmp_path) as world:
            for _ in range(ROUNDS):
                pod = world.new_pod()
                _, container = await started(world, pod)
                began = time.monotonic()
                world.name(pod, container)
                await world.until(lambda pod=pod: world.state(pod) is ContainerState.RUNNING)  # type: ignore[misc]
                starts.append(time.monotonic() - began)
                running = (await look(world, pod)).containers[0]
                began = time.monotonic()
                world.kill(running)
                await world.until(lambda pod=pod: world.state(pod) is ContainerState.EXITED)  # type: ignore[misc]
                exits.append(time.monotonic() - began)
        print(f"start seen after {statistics.median(starts) * 1000:.1f} ms, exit {statistics.median(exits) * 1000:.1f}")
        assert min(starts) < 0.1 * SLOWNESS and min(exits) < 0.3 * SLOWNESS, (starts, exits)

    uvloop.run(check())


def test_a_killed_containerd_withdraws_nothing_and_what_ended_meanwhile_is_seen_when_it_is_back(
    containerd: PrivateContainerd, tmp_path: Path
) -> None:
    async def check() -> None:
        async with pleg_on(containerd, tmp_path) as world:
            pods = [world.new_pod(), world.new_pod()]
            for pod in pods:
                _, container = await started(world, pod)
                world.name(pod, container)
            await world.until(lambda: all(world.state(pod) is ContainerState.RUNNING for pod in pods))
            before = world.pods.state[pods[0]["metadata"]["uid"]]
            victim = world.pods.state[pods[1]["metadata"]["uid"]].containers[0]
            os.kill(containerd.pid, signal.SIGKILL)
            containerd.end()
            world.kill(victim)
            await asyncio.to_thread(containerd.start)
            await world.until(lambda: world.state(pods[1]) is ContainerState.EXITED)
            after = world.pods.state[before.uid]
            assert after.same_content(before) and after.sandboxes[0].state is SandboxState.READY

    uvloop.run(check())


def test_exec_and_http_probes_report_the_state_of_the_container(containerd: PrivateContainerd, tmp_path: Path) -> None:
    async def check() -> None:
        async with pleg_on(containerd, tmp_path) as world:
            pod = world.new_pod()
            world.admit(
                pod,
                readinessProbe={"httpGet": {"path": "/ok", "port": "web"}, **SOON, "failureThreshold": 1},
                livenessProbe={
                    "exec": {"command": ["sh", "-c", "echo gone >&2; test ! -e /tmp/x"]},
                    **SOON,
                    "failureThreshold": 2,
                },
            )
            serve = "mkdir /w && echo fine >/w/ok && httpd -p 8080 -h /w; sleep 1000"
            sandbox = await world.runtime.run_pod_sandbox(pod, "")
            config = world.container(pod, command=f"({serve})")
            container = await world.runtime.create_container(sandbox, config, pod)
            await world.runtime.start_container(container)
            world.name(pod, container)
            await world.until(lambda: container in world.probes.state)
            await world.until(lambda: world.probes.state[container].readiness == "success")
            assert world.probes.state[container].liveness == "success"
            await world.runtime.exec_sync(container, ["sh", "-c", "rm /w/ok; touch /tmp/x"], 60)
            await world.until(lambda: world.probes.state[container].readiness == "failure")
            await world.until(lambda: world.probes.state[container].liveness == "failure")
            not_found = "Readiness probe failed: HTTP probe failed with statuscode: 404"
            await world.until(lambda: {not_found, "Liveness probe failed: gone\n"} <= world.event_texts)
            await world.until(lambda: "node" in world.images.state)
            assert any(BUSYBOX_IMAGE in image.names for image in world.images.state["node"].images)

    uvloop.run(check())


def test_a_command_that_takes_too_long_and_one_that_is_not_there(containerd: PrivateContainerd, tmp_path: Path) -> None:
    async def check() -> None:
        async with pleg_on(containerd, tmp_path) as world:
            pod = world.new_pod()
            world.admit(
                pod,
                readinessProbe={"exec": {"command": ["sleep", "60"]}, "periodSeconds": 1, "failureThreshold": 1},
                livenessProbe={"exec": {"command": ["no-such-command"]}, "periodSeconds": 1, "failureThreshold": 1},
            )
            _, container = await started(world, pod)
            world.name(pod, container)
            slow = 'Readiness probe failed: command timed out: "sleep 60" timed out after 1s'
            await world.until(lambda: slow in world.event_texts)
            await world.until(lambda: any("no-such-command" in text for text in world.event_texts))
            assert world.probes.state[container].liveness == "success"  # not tried is not failed

    uvloop.run(check())
