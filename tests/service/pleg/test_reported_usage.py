"""With the feature gate PodAndContainerStatsFromCRI the usage of pods is what the runtime reports (node.md 7.1)."""

import asyncio

import pytest

from bus.interface import RequestRefusedError
from bus.messages.cgroup_details import FoundCgroups, GetCgroups
from bus.messages.usage import GetUsage, PodUsage
from services.pleg.adapters.reported_usage import RUNTIME_SECONDS
from services.pleg.controllers.usage_reader import READ_SECONDS
from shared.cri.usage import ReportedInterface, ReportedPressure, ReportedShare, ReportedUsage, SandboxStats
from shared.model.frozen_copy import replace
from tests.service.pleg.usage_world import SECOND, ask, usage_of
from tests.service.pleg.world import PlegWorld

pytestmark = pytest.mark.virtual_time

GATES = {"PodAndContainerStatsFromCRI": True}
SHARE = ReportedShare(total=3, avg10=0.5, avg60=0.25, avg300=0.0)
FRESH = GetUsage(max_age_seconds=0.0)


def reported(sandbox: str, container: str, cpu: int = 5 * SECOND) -> SandboxStats:
    figures = {"cpu_nanoseconds": cpu, "memory_working_set": 11}
    return SandboxStats(
        id=sandbox,
        usage=ReportedUsage(time=4.0, figures=figures, pressures={"cpu": ReportedPressure(some=SHARE, full=SHARE)}),
        containers={container: ReportedUsage(time=3.0, figures={"cpu_nanoseconds": 2 * SECOND, "swap_usage": 13})},
        network_time=4.0,
        interfaces=(ReportedInterface(name="eth0", rx_bytes=17),),
        processes=19,
    )


async def with_reported_pod() -> tuple[PlegWorld, SandboxStats]:
    world = PlegWorld(gates=GATES)
    sandbox, container = await world.run_pod("a")
    stats = reported(sandbox, container)
    world.runtime.stats = (stats, reported("of no pod", "other"))
    world.usage.pods["a"] = usage_of("a", container, SECOND)  # by its cgroup
    return world, stats


async def the_pod(world: PlegWorld) -> PodUsage:
    """The pod by a new reading."""
    await world.until(lambda: "a" in world.pods.state)
    await world.pass_time(1.0)
    [pod] = (await ask(world, FRESH)).pods
    return pod


async def test_a_pod_has_the_figures_of_the_runtime() -> None:
    world, _ = await with_reported_pod()
    async with world:
        pod = await the_pod(world)
        assert pod.cgroup is not None and pod.cgroup.cpu_pressure is not None and pod.network is not None
        assert (pod.cgroup.time, pod.cgroup.cpu_nanoseconds, pod.cgroup.memory_working_set) == (4.0, 5 * SECOND, 11)
        assert pod.cgroup.swap_usage == 13, "CRI has swap of containers alone"
        assert (pod.cgroup.cpu_pressure.some.total, pod.cgroup.cpu_pressure.full.avg10) == (3, 0.5)
        assert (pod.processes, pod.network.interfaces[0].rx_bytes) == (19, 17)
        [container] = pod.containers
        assert container.cgroup is not None and container.cgroup.cpu_nanoseconds == 2 * SECOND
        assert world.usage.readings == 0, "no cgroup of a pod is read"


async def test_a_rate_is_that_of_the_runtime_where_it_has_one() -> None:
    world, stats = await with_reported_pod()
    async with world:
        await the_pod(world)
        [container] = stats.containers
        rate = ReportedUsage(time=9.0, figures={"cpu_nanoseconds": 4 * SECOND, "cpu_nanocores": 23})
        later = replace(stats.usage, figures={"cpu_nanoseconds": 6 * SECOND})
        world.runtime.stats = (replace(stats, usage=later, containers={container: rate}),)
        await world.pass_time(READ_SECONDS)
        pod = await the_pod(world)
        assert pod.cgroup is not None and pod.containers[0].cgroup is not None
        assert pod.containers[0].cgroup.cpu_nanocores == 23
        assert 0 < (pod.cgroup.cpu_nanocores or 0) <= SECOND / READ_SECONDS, "else it is computed"


async def test_a_pod_that_the_runtime_does_not_report_has_no_usage() -> None:
    world, stats = await with_reported_pod()
    async with world:
        await the_pod(world)
        world.runtime.stats = (replace(stats, containers={}),)
        assert (await the_pod(world)).containers == ()
        world.runtime.stats = ()
        await world.pass_time(1.0)
        assert (await ask(world, FRESH)).pods == ()


async def test_a_runtime_without_the_call_is_warned_of_once_and_cgroups_are_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, stats = await with_reported_pod()
    world.runtime.stats = None
    async with world:
        for _ in range(3):
            pod = await the_pod(world)
            assert pod.cgroup is not None and pod.cgroup.cpu_nanoseconds == SECOND
        warnings = [record.getMessage() for record in caplog.records if "ListPodSandboxStats" in record.getMessage()]
        [warning] = warnings
        assert "usage of pods is read from cgroups (use a newer runtime, or switch the feature gate off)" in warning
        world.runtime.stats = (stats,)  # it was replaced by a newer one
        pod = await the_pod(world)
        assert pod.cgroup is not None and pod.cgroup.cpu_nanoseconds == 5 * SECOND


async def test_another_error_of_the_runtime_is_no_reason_to_read_cgroups() -> None:
    world, _ = await with_reported_pod()
    async with world:
        await the_pod(world)
        await world.pass_time(1.0)
        world.runtime.fail("ListPodSandboxStats", "Unavailable")
        with pytest.raises(RequestRefusedError):
            await ask(world, FRESH)
        assert world.usage.readings == 0
        assert (await the_pod(world)).processes == 19


async def test_a_runtime_that_hangs_delays_no_reading_of_the_node_and_pods_are_read_from_cgroups(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, _ = await with_reported_pod()
    async with world:
        await the_pod(world)
        await world.pass_time(1.0)
        hang = world.runtime.hang("ListPodSandboxStats")
        asking = asyncio.create_task(ask(world, FRESH))
        await world.until(hang.reached.is_set)
        of_node = asyncio.create_task(ask(world, GetUsage(max_age_seconds=0.0, pods=False)))
        assert await world.until(of_node.done, within=RUNTIME_SECONDS / 4) == 0.0
        await world.pass_time(RUNTIME_SECONDS / 4)
        world.usage.notify()
        await world.until(lambda: world.node_usage.state["node"].read_at > of_node.result().node.read_at, within=0.5)
        assert not asking.done()
        await world.pass_time(RUNTIME_SECONDS)
        [pod] = asking.result().pods
        assert pod.cgroup is not None and pod.cgroup.cpu_nanoseconds == SECOND
        assert "did not answer ListPodSandboxStats within 2 s: usage of pods is read from cgroups" in caplog.text
        hang.release.set()
        assert (await the_pod(world)).processes == 19


async def test_requests_that_wait_for_a_runtime_that_hangs_get_the_same_reading() -> None:
    """Else each would wait for those before it, and that of an eviction would get no answer."""
    world, _ = await with_reported_pod()
    async with world:
        await the_pod(world)
        await world.pass_time(1.0)
        hang = world.runtime.hang("ListPodSandboxStats", times=20)
        asking = [asyncio.create_task(ask(world, FRESH)) for _ in range(8)]
        await world.until(hang.reached.is_set)
        await world.until(lambda: all(each.done() for each in asking), within=2.5 * RUNTIME_SECONDS)
        assert all(len(each.result().pods) == 1 for each in asking)


async def test_without_the_gate_the_runtime_is_not_asked() -> None:
    world, _ = await with_reported_pod()
    world.gates = {}
    async with world:
        pod = await the_pod(world)
        assert pod.cgroup is not None and pod.cgroup.cpu_nanoseconds == SECOND
        assert not world.runtime.requests("ListPodSandboxStats")


async def test_cgroups_of_the_node_alone_are_read_without_pods() -> None:
    world, _ = await with_reported_pod()
    async with world:
        await world.until(lambda: "a" in world.pods.state)
        for pods in (True, False, True, False):
            await world.podsync.ask("pleg", GetCgroups(pods=pods), FoundCgroups)
        assert world.usage.cgroup_readings == [["a"], []], "each is kept for itself"
