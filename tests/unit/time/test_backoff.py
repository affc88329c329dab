"""Exponential back-off: the delays, their cap, jitter and reset."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from shared.time.backoff import Backoff

SECONDS = st.floats(0.001, 1000)
BACKOFFS = st.builds(Backoff, initial=SECONDS, cap=st.floats(1000, 10000), factor=st.floats(1, 10))


def test_each_failure_doubles_the_delay_up_to_the_cap() -> None:
    backoff = Backoff(initial=0.5, cap=3.0)
    assert [backoff.delay(failures) for failures in (0, 1, 2, 3, 4, 5, 10**6)] == [0, 0.5, 1, 2, 3, 3, 3]


def test_the_factor_is_the_growth() -> None:
    backoff = Backoff(initial=1.0, factor=10.0)
    assert [backoff.delay(failures) for failures in (1, 2, 3)] == [1, 10, 100]


def test_the_jitter_is_a_share_of_the_delay_also_beyond_the_cap() -> None:
    backoff = Backoff(initial=10.0, cap=20.0)
    assert backoff.delay(1, jitter=0.5) == 15
    assert backoff.delay(1, jitter=-0.5) == 5
    assert backoff.delay(5, jitter=0.5) == 30


@given(BACKOFFS, st.integers(1, 2000))
def test_the_delay_never_shrinks_and_never_exceeds_the_cap(backoff: Backoff, failures: int) -> None:
    assert backoff.delay(failures) <= backoff.delay(failures + 1) <= backoff.cap < inf


@given(SECONDS, st.integers(0, 60))
def test_the_next_delay_is_that_of_one_more_failure(initial: float, failures: int) -> None:
    backoff = Backoff(initial=initial, cap=5000.0)
    assert backoff.next_delay(backoff.delay(failures)) == backoff.delay(failures + 1)


def test_a_failure_counts_until_the_reset_and_not_after_it() -> None:
    backoff = Backoff(initial=1.0, reset_after=600.0)
    assert not backoff.is_reset(since=100.0, now=700.0)
    assert backoff.is_reset(since=100.0, now=700.5)


def test_without_a_reset_every_failure_counts() -> None:
    assert not Backoff(initial=1.0).is_reset(since=0.0, now=1e9)
