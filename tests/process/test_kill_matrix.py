"""The kill matrix in small: what a kill must not cost, on a real cluster, asserted cell by cell; tests.chaos runs all.

Zero containers restarted, zero Ready flaps of pods and node, no exec session lost (the server's own kill excepted), an
end state equal to the undisturbed run's, a lease at most two intervals old, and a new pod Ready within three seconds of
the kill, or as many times that as the machine is slow. Where a killed process alone takes that long to be back, the new
pod has a second more than this took and twice the time that a pod takes without a kill, both measured in this run.
A cell that was only late is measured once more: a burst of other work spoils one measurement.
"""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from bus.messages.streams import SERVICES
from tests.chaos.cells import CONTAINERD, SUPERVISORD, UNDISTURBED, Cell, Hit, Moment, Trigger
from tests.chaos.costs import complaints, late
from tests.chaos.report import Row, line
from tests.chaos.runner import Runner
from tests.support.waits.deadline import SLOWNESS, measure_slowness

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

PODS = 8  # that start and stop in the cells in mid-flight
ON_THE_WAY = ("sources", "podsync", "volume", "pleg")  # of a pod that starts; the others are killed there at night
MID_FLIGHT = {service: Cell((service,), moment=Moment.MID_FLIGHT) for service in SERVICES}

CELLS = [
    *(Cell((service,)) for service in SERVICES),
    *(
        cell if service in ON_THE_WAY else pytest.param(cell, marks=pytest.mark.night)
        for service, cell in MID_FLIGHT.items()
    ),
    Cell((CONTAINERD,)),
    Cell(("status",), Hit.STOP),
    Cell((SUPERVISORD, *SERVICES)),
    *(
        Cell((point.split(".")[0],), moment=Moment.POINT, point=point, trigger=trigger)
        for point, trigger in (
            ("sources.published", Trigger.START),
            ("podsync.acted.StartContainer", Trigger.START),
            ("podsync.calling.KillPod", Trigger.END),
            ("volume.acted.MountVolume", Trigger.START),
            ("volume.writer.data_link", Trigger.UPDATE),
        )
    ),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runner() -> AsyncIterator[Runner]:
    async with Runner("supervisord", PODS, slowness=SLOWNESS) as runner:
        for cell in UNDISTURBED:
            row = await measured(runner, cell)
            assert not row.complaints, line(row)
        yield runner


async def measured(runner: Runner, cell: Cell) -> Row:
    """The row of this cell."""
    costs = await runner.measure(cell)
    limits = replace(runner.limits, slowness=max(SLOWNESS, measure_slowness()))  # as slow as the machine is by now
    found = complaints(cell, costs, limits)
    if found and found == late(cell, costs, limits):
        costs = await runner.measure(cell)
        found = complaints(cell, costs, limits)
    return Row(runner.front, cell, costs, tuple(found))


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
async def test_a_kill_costs_nothing_but_a_few_seconds(runner: Runner, cell: Cell) -> None:
    row = await measured(runner, cell)
    print(line(row))
    assert not row.complaints, line(row)
