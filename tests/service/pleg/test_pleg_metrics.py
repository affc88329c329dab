"""What pleg counts: its lists of the runtime, and tries of probes for as long as their worker lasts."""

import os
import subprocess
import time

import pytest

from services.pleg.controllers.pod_observer import DURATION as LOOKED
from services.pleg.controllers.probe_metrics import DURATION, STARTED, TOTAL
from services.pleg.controllers.relists import DURATION as LISTED
from services.pleg.controllers.relists import INTERVAL, LAST_SEEN
from shared.cri.interface import ExecResult
from shared.metrics.family import PROBES
from tests.service.pleg.test_probes import FAILS, probe, running
from tests.service.pleg.world import PlegWorld, counted

pytestmark = pytest.mark.virtual_time


async def test_tries_are_counted_by_result_and_timed_where_they_do_not_fail(world: PlegWorld) -> None:
    await running(world, livenessProbe=probe(failureThreshold=9))
    await world.pass_time(20)
    before = counted(world.metrics, DURATION.name, PROBES)["Liveness", "c", "a", "default"]
    world.runtime.execute = lambda container_id, command: FAILS
    await world.pass_time(10)
    world.runtime.fail("ExecSync", "Unavailable", "gone", times=0)
    await world.pass_time(10)
    results = {labels[1]: value for labels, [value] in counted(world.metrics, TOTAL.name, PROBES).items()}
    assert set(results) == {"successful", "failed", "unknown"}
    assert results["successful"] >= 2 and results["failed"] >= 1
    assert counted(world.metrics, TOTAL.name, PROBES).keys() == {
        ("Liveness", result, "c", "a", "default", "a") for result in results
    }
    timed = counted(world.metrics, DURATION.name, PROBES)["Liveness", "c", "a", "default"]
    assert sum(timed[:-1]) == results["successful"] + results["unknown"] >= sum(before[:-1])


async def test_the_page_of_probes_has_the_start_of_the_process_that_counts_them(world: PlegWorld) -> None:
    [began] = counted(world.metrics, STARTED.name, PROBES)[()]
    assert began == pytest.approx(start_by_ps(), abs=5)


def start_by_ps() -> float:
    """The start of this process in seconds since the epoch, as ps has it: to the second."""
    return time.time() - float(subprocess.check_output(["/bin/ps", "-o", "etimes=", "-p", str(os.getpid())]))


async def test_the_series_of_a_probe_end_with_its_worker(world: PlegWorld) -> None:
    for uid in ("a", "b"):
        await running(world, uid, readinessProbe=probe())
    assert {labels[5] for labels in counted(world.metrics, TOTAL.name, PROBES)} == {"a", "b"}
    world.probed.delete("a")
    await world.until(lambda: {labels[5] for labels in counted(world.metrics, TOTAL.name, PROBES)} == {"b"})
    assert {labels[2] for labels in counted(world.metrics, DURATION.name, PROBES)} == {"b"}


@pytest.mark.long
async def test_lists_are_counted_with_their_interval(world: PlegWorld) -> None:
    world.runtime.execute = lambda container_id, command: ExecResult(exit_code=0)
    await world.pass_time(600)
    listed, interval = counted(world.metrics, LISTED.name)[()], counted(world.metrics, INTERVAL.name)[()]
    assert sum(listed[:-1]) >= 2
    assert sum(interval[:-1]) == sum(listed[:-1]) - 1
    assert 0 < interval[-1] <= 600
    [last_seen] = counted(world.metrics, LAST_SEEN.name)[()]
    assert 0 < last_seen <= world.clock.wall()


async def test_a_look_at_one_pod_is_timed(world: PlegWorld) -> None:
    container = await running(world)
    before = sum(counted(world.metrics, LOOKED.name)[()][:-1])
    world.runtime.exit_container(container, 1)
    await world.until(lambda: sum(counted(world.metrics, LOOKED.name)[()][:-1]) > before)
