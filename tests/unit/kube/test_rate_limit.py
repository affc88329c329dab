"""The token bucket."""

import pytest

from shared.kube.rate_limit import TokenBucket


def test_a_burst_is_free_and_then_callers_queue_at_the_rate() -> None:
    bucket = TokenBucket(10, 3, 100.0)
    assert [bucket.take(100.0) for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])


def test_it_fills_up_again_to_the_burst_and_no_further() -> None:
    bucket = TokenBucket(10, 3, 0.0)
    for _ in range(3):
        bucket.take(0.0)
    assert [bucket.take(50.0) for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


def test_a_negative_rate_is_no_limit() -> None:
    bucket = TokenBucket(-1, 0, 0.0)
    assert {bucket.take(0.0) for _ in range(1000)} == {0.0}


def test_zero_means_five_a_second_and_ten_at_once() -> None:
    bucket = TokenBucket(0, 0, 0.0)
    assert [bucket.take(0.0) for _ in range(11)] == pytest.approx([0.0] * 10 + [0.2])


def test_a_token_given_back_is_there_for_the_next() -> None:
    bucket = TokenBucket(1, 1, 0.0)
    bucket.take(0.0)
    assert bucket.take(0.0) == pytest.approx(1.0)
    bucket.give_back()
    assert bucket.take(0.0) == pytest.approx(1.0)


def test_a_clock_that_steps_back_gives_nothing() -> None:
    bucket = TokenBucket(1, 1, 10.0)
    bucket.take(10.0)
    assert bucket.take(5.0) == pytest.approx(1.0)
