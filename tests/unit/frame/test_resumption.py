"""A suspension of the machine is noticed by its two clocks, and reported once to each part that wants to know it."""

import asyncio
import logging
from itertools import chain
from time import CLOCK_BOOTTIME, CLOCK_MONOTONIC

import pytest

from services.frame.resumption import MIN_SUSPENDED_SECONDS, Resumption, suspended_since_boot
from tests.fakes.virtual_time import VirtualLoop, on_virtual_time, virtual_clock


class Machine:
    """The seconds that a machine was suspended."""

    def __init__(self) -> None:
        self.suspended = 100.0  # before this process began

    def __call__(self) -> float:
        return self.suspended


def test_each_part_gets_the_seconds_of_a_suspension_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    machine = Machine()
    resumption = Resumption(machine)
    first, second = list[float](), list[float]()
    resumption.subscribe(first.append)
    resumption.subscribe(second.append)
    resumption.look()
    assert first == second == []
    machine.suspended += 3600
    resumption.look()
    resumption.look()
    assert first == second == [3600]
    machine.suspended += 5
    resumption.look()
    assert first == [3600, 5]
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["the machine was suspended for 3600 s", "the machine was suspended for 5 s"]


def test_what_the_clocks_differ_by_in_reading_is_no_suspension() -> None:
    machine = Machine()
    resumption = Resumption(machine)
    seen = list[float]()
    resumption.subscribe(seen.append)
    for _ in range(100):
        machine.suspended += MIN_SUSPENDED_SECONDS / 2
        resumption.look()
    assert seen == []


def test_a_part_that_fails_keeps_no_other_from_its_work(caplog: pytest.LogCaptureFixture) -> None:
    machine, seen = Machine(), list[float]()
    resumption = Resumption(machine)

    def fail(seconds: float) -> None:
        raise ValueError(seconds)

    resumption.subscribe(fail)
    resumption.subscribe(seen.append)
    machine.suspended += 60
    resumption.look()
    assert seen == [60]
    assert "the work that is due after a suspension failed" in caplog.text


@on_virtual_time
async def test_it_is_noticed_within_a_second_and_a_half() -> None:
    machine, clock = Machine(), virtual_clock()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    resumption = Resumption(machine)
    seen: list[float] = []
    resumption.subscribe(lambda _: seen.append(clock.monotonic()))
    resumption.begin(loop)
    for _ in range(20):
        before = len(seen)
        machine.suspended += 60
        suspended_at = clock.monotonic()
        while len(seen) == before:
            clock.advance(0.25)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert seen[-1] - suspended_at <= 1.75


def test_a_process_that_is_stopped_while_it_reads_the_clocks_sees_no_suspension() -> None:
    readings = iter([(CLOCK_MONOTONIC, 10.0), (CLOCK_BOOTTIME, 110.0), (CLOCK_MONOTONIC, 70.0)])
    again = iter([(CLOCK_MONOTONIC, 70.1), (CLOCK_BOOTTIME, 170.1), (CLOCK_MONOTONIC, 70.1)])
    both = chain(readings, again)

    def read(clock: int) -> float:
        expected, seconds = next(both)
        assert clock == expected
        return seconds

    assert suspended_since_boot(read) == 100.0
    assert list(both) == []


def test_the_machine_itself_is_not_suspended_while_tests_run() -> None:
    seen = list[float]()
    resumption = Resumption()
    resumption.subscribe(seen.append)
    resumption.look()
    assert seen == []
