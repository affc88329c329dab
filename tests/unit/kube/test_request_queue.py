"""Who passes the rate limit first, and how long the others wait."""

import asyncio

import pytest

from shared.kube.request_queue import RequestQueue, Urgency
from tests.fakes.memory_bus import ManualClock
from tests.fakes.virtual_time import VirtualLoop, on_virtual_time


class Passing:
    """A queue on virtual time, and who passed it when."""

    def __init__(self, qps: float, burst: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.clock: ManualClock = loop.clock
        self.began = self.clock.monotonic()
        self.queue = RequestQueue(qps, burst, self.clock)
        self.passed: list[tuple[str, float]] = []

    def enter(self, name: str, urgency: Urgency = Urgency.FIRST) -> asyncio.Task[None]:
        async def entering() -> None:
            await self.queue.enter(urgency)
            self.passed.append((name, round(self.clock.monotonic() - self.began, 3)))

        return asyncio.create_task(entering())

    async def live(self, seconds: float) -> None:
        """Time passes from timer to timer."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        until = self.clock.monotonic() + seconds
        while True:
            for _ in range(5):
                await asyncio.sleep(0)
            step = min(loop.next_timer(), until) - self.clock.monotonic()
            if step <= 0 and self.clock.monotonic() >= until:
                return
            self.clock.advance(max(step, 0.0))

    def times(self, start: str) -> list[float]:
        return [at for name, at in self.passed if name.startswith(start)]


@on_virtual_time
async def test_a_burst_passes_at_once_and_the_rest_in_order_at_the_rate() -> None:
    passing = Passing(10, 3)
    for number in range(6):
        passing.enter(f"r{number}")
    await passing.live(1)
    assert passing.passed == [("r0", 0), ("r1", 0), ("r2", 0), ("r3", 0.1), ("r4", 0.2), ("r5", 0.3)]


@on_virtual_time
async def test_a_thousand_less_urgent_requests_delay_an_urgent_one_by_two_turns_at_most() -> None:
    passing = Passing(50, 100)
    for number in range(1000):
        passing.enter(f"token{number}", Urgency.SECOND)
    await passing.live(2)
    for number in range(20):
        passing.enter(f"status{number}")
        await passing.live(0.1)
    waits = [at - (2 + 0.1 * number) for number, at in enumerate(passing.times("status"))]
    assert len(waits) == 20 and max(waits) <= 0.04 + 1e-6
    await passing.live(20)
    assert len(passing.times("token")) == 1000


@on_virtual_time
async def test_requests_that_go_first_all_the_time_leave_every_eighth_turn_to_the_one_that_waited_longest() -> None:
    passing = Passing(10, 1)
    for number in range(5):
        passing.enter(f"later{number}", Urgency.SECOND)
    for number in range(100):
        passing.enter(f"first{number}")
    await passing.live(4.2)
    assert len(passing.times("later")) == 5


@on_virtual_time
async def test_one_that_is_cancelled_takes_no_turn_from_the_others() -> None:
    passing = Passing(1, 1)
    passing.enter("a")
    given_up = passing.enter("b")
    passing.enter("c")
    await passing.live(0.5)
    given_up.cancel()
    await passing.live(1)
    assert passing.passed == [("a", 0), ("c", 1)]


@on_virtual_time
async def test_a_turn_that_comes_together_with_a_cancellation_goes_to_the_next() -> None:
    passing = Passing(1, 1)
    passing.enter("a")
    given_up = passing.enter("b")
    await passing.live(0.5)
    passing.clock.advance(0.6)
    passing.queue._serve()  # b's turn, and before b runs it is cancelled
    given_up.cancel()
    passing.enter("c")
    await passing.live(0.1)
    assert passing.passed == [("a", 0), ("c", 1.1)]


@pytest.mark.parametrize("urgency", Urgency)
@on_virtual_time
async def test_a_request_that_enters_before_cancelled_ones_have_run_passes(urgency: Urgency) -> None:
    passing = Passing(1, 1)
    passing.enter("a")
    given_up = [passing.enter("b", urgency), passing.enter("c", urgency)]
    await passing.live(0.5)
    passing.clock.advance(0.6)  # a token is ready
    for task in given_up:
        task.cancel()
    await passing.queue.enter(urgency)
    passing.enter("d")
    await passing.live(2)
    assert passing.passed == [("a", 0), ("d", 2.1)]


@on_virtual_time
async def test_the_timer_passes_over_cancelled_requests_and_no_token_is_lost_or_gained() -> None:
    passing = Passing(1, 1)
    passing.enter("a")
    given_up = [passing.enter("b"), passing.enter("c")]
    for name in "def":
        passing.enter(name)
    await passing.live(0.5)
    passing.clock.advance(0.6)
    for task in given_up:
        task.cancel()
    passing.queue._serve()  # what the timer calls
    await passing.live(3)
    assert passing.passed == [("a", 0), ("d", 1.1), ("e", 2.1), ("f", 3.1)]


@pytest.mark.parametrize("urgency", Urgency)
@on_virtual_time
async def test_without_a_limit_no_request_waits(urgency: Urgency) -> None:
    passing = Passing(-1, 0)
    for number in range(100):
        passing.enter(f"r{number}", urgency)
    await passing.live(0)
    assert len(passing.times("r")) == 100
