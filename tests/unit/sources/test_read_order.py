"""Which object is read next: requests before refreshes, refreshes spread and never faster than their share."""

from services.sources.core.read_order import ReadOrder
from shared.podspec.references import Reference


def secret(number: int) -> Reference:
    return Reference("Secret", "default", f"s{number}")


def order(*shown: int, a_second: float = 2.0, period: float = 30.0) -> ReadOrder:
    made = ReadOrder(a_second, period)
    for number in shown:
        made.refresh(secret(number), wanted=True)
    return made


def read(made: ReadOrder, now: float, ttl: float = 0.0) -> Reference | None:
    """Take one and be done with it."""
    reference = made.take(now, ttl)
    if reference is not None:
        made.done(reference)
    return reference


def test_what_a_request_waits_for_comes_before_refreshes_in_the_order_of_asking() -> None:
    made = order(1)
    made.need(secret(3))
    made.need(secret(2))
    made.need(secret(3))
    assert [read(made, 0.0) for _ in range(4)] == [secret(3), secret(2), secret(1), None]


def test_one_read_of_an_object_is_under_way_at_a_time() -> None:
    made = order()
    made.need(secret(1))
    assert made.take(0.0, 0.0) == secret(1)
    made.need(secret(1))
    assert (made.take(0.0, 0.0), made.next_at(0.0), len(made)) == (None, None, 2)
    made.done(secret(1))
    assert made.take(0.0, 0.0) == secret(1)


def test_refreshes_keep_their_pace_and_each_object_its_period() -> None:
    made = order(1, 2, 3)
    assert [read(made, 0.0), read(made, 0.0), made.next_at(0.0)] == [secret(3), None, 0.5]
    assert [read(made, 0.5), read(made, 1.0), made.next_at(0.0)] == [secret(2), secret(1), 30.0]
    assert (read(made, 29.9), read(made, 30.0), made.next_at(60.0)) == (None, secret(3), 60.5)


def test_a_round_takes_as_long_as_the_pace_says_where_there_is_much_to_refresh() -> None:
    made, last, longest = order(*range(200)), dict[Reference, float](), 0.0
    for step in range(1000):
        now = step / 2
        reference = read(made, now)
        assert reference is not None
        longest = max(longest, now - last.get(reference, now))
        last[reference] = now
    assert (longest, made.period(0.0), len(last)) == (100.0, 100.0, 200)


def test_an_object_that_was_read_for_a_request_is_not_refreshed_soon() -> None:
    made = order(1, 2)
    read(made, 0.0), read(made, 0.5)
    made.need(secret(2))
    assert read(made, 20.0) == secret(2)
    assert [read(made, 30.5), read(made, 49.9), read(made, 50.0)] == [secret(1), None, secret(2)]


def test_what_is_forgotten_or_not_to_be_refreshed_is_not_read() -> None:
    made = order(1, 2)
    made.need(secret(1))
    made.forget(secret(1))
    made.refresh(secret(2), wanted=False)
    assert (read(made, 0.0), made.next_at(0.0), len(made)) == (None, None, 0)


def test_nothing_is_refreshed_where_only_requests_are_served() -> None:
    made = order(1, 2, a_second=0.0)
    assert (read(made, 0.0), made.next_at(0.0), made.period(7.0)) == (None, None, 30.0)
