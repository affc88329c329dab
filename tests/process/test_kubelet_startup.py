"""A start takes few seconds; `bench/startup.py` measures it, this only notices when something got out of hand."""

import statistics

from bench.startup import measure

CPU_SECONDS = 6.0  # of all processes together; two to three of the clock where two cores have nothing else to do


async def test_all_seven_send_beats_after_few_seconds_of_work() -> None:
    taken = await measure(3)
    assert statistics.median(cpu for _, cpu in taken) < CPU_SECONDS, taken
