"""A shutdown of the machine with a real containerd and processes: logind, on a D-Bus of the test, waits for pods."""

from pathlib import Path

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


async def ends(world: World, name: str) -> list[int]:
    """When each container of the pod ended; none while one runs."""
    pod = await world.runtime_pod(name)
    assert pod is not None
    ended = [c.finished_at for c in pod.containers if c.state is ContainerState.EXITED]
    return ended if len(ended) == len(pod.containers) else []


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
            for name in ("high", "low"):
                shown = await world.pod(name)
                assert shown is not None and shown["status"]["phase"] == "Running"
                kinds = [c["type"] for c in shown["status"]["conditions"] if c["status"] == "True"]
                assert "DisruptionTarget" in kinds and "Ready" not in kinds

            await world.wait_back("podsync", world.kill("podsync"))
            await logind.announce(begins=False)
            for name in ("high", "low"):
                again = (await world.wait_running(name)).containers[0]
                assert again.restart_count == 1
                starts = await world.runtime.exec_sync(again.id, ["cat", "/data/starts"], timeout=60)
                assert starts.stdout.decode().count("a start") == 2, "the emptyDir keeps its content"
            await world.wait_served("high", "low")
            await world.wait_for(lambda: logind.locks == 2, "podsync and status to delay the next shutdown")


def condition(status: Object, kind: str) -> Object:
    """The condition; {} = there is none."""
    return next((c for c in status["conditions"] if c["type"] == kind), {})


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
            ready = condition((await cluster.node())["status"], "Ready")
            assert (ready["status"], ready["message"]) == ("False", "node is shutting down")
            for name in ("high", "low"):
                shown = await cluster.get_pod(name)
                assert shown is not None
                status = shown["status"]
                assert condition(status, "DisruptionTarget")["message"] == SHUTDOWN_MESSAGE
                assert (status["phase"], condition(status, "Ready")["status"]) == ("Running", "False")
                assert "terminated" in status["containerStatuses"][0]["lastState"]
            await cluster.create(cluster.pod("late"))

            async def is_rejected() -> bool:
                late = await cluster.get_pod("late")
                return late is not None and late["status"].get("reason") == "NodeShutdown"

            await cluster.wait_for(is_rejected, "the pod that came late to be rejected")

            await logind.announce(begins=False)
            await cluster.wait_ready("high", "low")
            await cluster.wait_node_ready()
            for name in ("high", "low"):
                shown = await cluster.get_pod(name)
                assert shown is not None and not condition(shown["status"], "DisruptionTarget")
                assert shown["status"]["containerStatuses"][0]["restartCount"] == 1


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
