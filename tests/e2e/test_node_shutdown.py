"""A shutdown of the machine with a real containerd and processes: logind, on a D-Bus of the test, waits for pods."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shared.model.conditions import SHUTDOWN_MESSAGE
from shared.model.objects import Object
from shared.model.runtime import ContainerState
from tests.fakes.logind import a_logind
from tests.support.agents.world import World, busybox_pod
from tests.support.clusters.cluster import Cluster

pytestmark = [pytest.mark.root, pytest.mark.asyncio, pytest.mark.timeout(300)]

PERIODS = [{"priority": priority, "shutdownGracePeriodSeconds": 60} for priority in (0, 1000)]
RUN = 'echo "a start" >> /data/starts; trap "exit 0" TERM; while :; do sleep 0.1; done'


def a_pod(name: str, priority: int) -> Object:
    """A pod that ends well when it is stopped, does not restart, and counts its starts in an emptyDir."""
    pod = busybox_pod(name, "sh", "-c", RUN, grace=30, priority=priority, restartPolicy="Never")
    pod["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return pod


async def starts(world: World, container: str) -> int:
    """How often the pod of this container has started a container; the newest one writes it once it runs."""
    answer = await world.runtime.exec_sync(container, ["cat", "/data/starts"], timeout=60)
    return answer.stdout.decode().count("a start")


async def ends(world: World, name: str) -> list[int]:
    """When each container of the pod ended; none while one runs."""
    pod = await world.runtime_pod(name)
    assert pod is not None
    ended = [c.finished_at for c in pod.containers if c.state is ContainerState.EXITED]
    return ended if len(ended) == len(pod.containers) else []


async def is_shown_as_stopped(world: World, name: str) -> bool:
    """Return whether the read-only port shows that a shutdown has stopped the pod, which starts again after it."""
    status = (await world.pod(name) or {}).get("status") or {}
    kinds = {c["type"] for c in status.get("conditions") or () if c["status"] == "True"}
    return status.get("phase") == "Running" and "DisruptionTarget" in kinds and "Ready" not in kinds


async def test_pods_stop_by_priority_and_start_again_in_place_through_kills_of_the_processes() -> None:
    async with a_logind(max_delay_seconds=600) as logind:
        world = World(
            config={"shutdownGracePeriodByPodPriority": PERIODS},
            environment={"DBUS_SYSTEM_BUS_ADDRESS": logind.address},
        )
        async with world:
            for name, priority in (("high", 1000), ("low", 0)):
                world.put_manifest(name, a_pod(name, priority))
            for name in ("high", "low"):
                await world.wait_running(name)
            await world.wait_served("high", "low")
            await world.wait_for(lambda: logind.locks == 2, "podsync and status to delay a shutdown")

            old = world.pid_of("podsync")
            world.crash_at("podsync.published.KillPod")
            await logind.announce()
            await world.wait_back("podsync", old)
            assert world.crashed
            await world.wait_for(lambda: logind.locks == 0, "the machine to go on")
            assert len(logind.reasons) == 2
            low, high = await ends(world, "low"), await ends(world, "high")
            assert low and high and max(low) < min(high)
            for name in ("high", "low"):  # server learns of the statuses by itself
                await world.wait_for(partial(is_shown_as_stopped, world, name), f"pod {name} to be shown as stopped")

            await world.wait_back("podsync", world.kill("podsync"))
            await logind.announce(begins=False)
            for name in ("high", "low"):
                again = (await world.wait_running(name)).containers[0]
                assert again.restart_count == 1

                async def has_two(container: str = again.id) -> bool:
                    return await starts(world, container) == 2

                await world.wait_for(has_two, "both starts to be in the emptyDir, which keeps its content")
            await world.wait_served("high", "low")
            await world.wait_for(lambda: logind.locks == 2, "podsync and status to delay the next shutdown")


def condition(status: Object, kind: str) -> Object:
    """The condition; {} = there is none."""
    return next((c for c in status["conditions"] if c["type"] == kind), {})


async def shown(cluster: Cluster) -> list[tuple[Any, ...]]:
    """The condition of the Node, and what a shutdown changes in the statuses of both pods."""
    ready = condition((await cluster.node())["status"], "Ready")
    found: list[tuple[Any, ...]] = [(ready.get("status"), ready.get("message"))]
    for name in ("high", "low"):
        status = (await cluster.get_pod(name) or {})["status"]
        target, last = condition(status, "DisruptionTarget"), status["containerStatuses"][0]["lastState"]
        ready = condition(status, "Ready")
        found.append((status["phase"], ready.get("status"), target.get("message"), "terminated" in last))
    return found


DOWN = [("False", "node is shutting down"), *2 * [("Running", "False", SHUTDOWN_MESSAGE, True)]]


async def is_time_over(cluster: Cluster) -> bool:
    """Whether status let the machine go on because the 5 s for the API server were over."""

    def line() -> str:
        found = re.search("the machine may shut down: (.*)", cluster.agent.log_of("status"))
        return found[1] if found else ""

    return "time is over" in await cluster.agent.wait_for(line, "status to log why the machine may go on")


async def test_the_api_server_has_the_statuses_before_the_machine_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = 'trap "exit 0" TERM; while :; do sleep 0.1; done'
    periods = {"shutdownGracePeriod": "80s", "shutdownGracePeriodCriticalPods": "20s"}
    async with a_logind(max_delay_seconds=600) as logind:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", logind.address)
        async with Cluster(tmp_path, config=periods) as cluster:
            for name, more in (("high", {"priorityClassName": "system-cluster-critical"}), ("low", {})):
                pod = cluster.pod(name, "sh", "-c", wait, grace=30, restartPolicy="Never", **more)
                await cluster.create(pod)
            await cluster.wait_ready("high", "low")
            await cluster.agent.wait_for(lambda: logind.locks == 2, "podsync and status to delay a shutdown")

            await logind.announce()
            await cluster.agent.wait_for(lambda: logind.locks == 0, "the machine to go on")

            async def is_down() -> bool:
                return await shown(cluster) == DOWN

            if await is_time_over(cluster):
                await cluster.wait_for(is_down, "a slow API server to have the statuses")
            assert await shown(cluster) == DOWN
            await cluster.create(cluster.pod("late"))

            async def is_rejected() -> bool:
                late = await cluster.get_pod("late")
                return late is not None and late["status"].get("reason") == "NodeShutdown"

            await cluster.wait_for(is_rejected, "the pod that came late to be rejected")

            await logind.announce(begins=False)
            await cluster.wait_ready("high", "low")
            await cluster.wait_node_ready()
            for name in ("high", "low"):
                status = (await cluster.get_pod(name) or {})["status"]
                assert not condition(status, "DisruptionTarget")
                assert status["containerStatuses"][0]["restartCount"] == 1


async def test_the_other_process_delays_the_shutdown_when_one_is_killed() -> None:
    async with a_logind(max_delay_seconds=600) as logind:
        world = World(config={"shutdownGracePeriod": "60s"}, environment={"DBUS_SYSTEM_BUS_ADDRESS": logind.address})
        async with world:
            await world.wait_for(lambda: logind.locks == 2, "podsync and status to delay a shutdown")
            for number, service in enumerate(("podsync", "status"), start=3):
                logind.fewest_locks = 2
                await world.wait_back(service, world.kill(service))
                granted = lambda number=number: logind.locks == 2 and len(logind.reasons) == number  # noqa: E731
                await world.wait_for(granted, f"{service} to delay a shutdown again")
                assert logind.fewest_locks == 1
