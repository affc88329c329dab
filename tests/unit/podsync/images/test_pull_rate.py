"""When a pull may begin within registryPullQPS and registryBurst."""

from services.podsync.core.images.pull_rate import full_rate


def began(qps: float, burst: int, *moments: float) -> list[bool]:
    """Whether a pull may begin at each of these moments."""
    rate, answers = full_rate(qps, burst, 0.0), list[bool]()
    for now in moments:
        taken = rate.take(now)
        answers.append(taken is not None)
        rate = taken or rate
    return answers


def test_a_burst_of_pulls_begins_at_once_and_then_one_for_each_token() -> None:
    assert began(2, 3, 0, 0, 0, 0, 0.4, 0.5, 0.6, 1.0) == [True, True, True, False, False, True, False, True]


def test_tokens_are_kept_up_to_the_burst() -> None:
    assert began(5, 2, 0, 0, 1000, 1000, 1000) == [True, True, True, True, False]


def test_one_pull_may_begin_with_a_burst_of_zero_and_all_without_a_rate() -> None:
    assert began(1, 0, 0, 0, 1) == [True, False, True]
    assert all(began(0, 1, *[0.0] * 50))
