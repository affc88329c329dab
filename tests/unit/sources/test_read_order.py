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
    made.need(secret(3), ["a"])
    made.need(secret(2), ["a"])
    made.need(secret(3), ["a"])
    assert [read(made, 0.0) for _ in range(4)] == [secret(3), secret(2), secret(1), None]


def test_pods_take_turns_so_that_one_that_needs_very_much_delays_another_by_one_read() -> None:
    made = order()
    for number in range(1000):
        made.need(secret(number), ["large"])
    assert read(made, 0.0) == secret(0)
    made.need(secret(2000), ["small"])
    made.need(secret(2001), ["small"])
    made.need(secret(3000), ["smaller"])
    turns = [read(made, 0.0) for _ in range(6)]
    assert turns == [secret(number) for number in (1, 2000, 3000, 2, 2001, 3)]
    assert len(made) == 996


def test_what_several_pods_need_is_read_once_at_the_first_of_their_turns() -> None:
    made = order()
    for number in range(3):
        made.need(secret(number), ["large"])
    made.need(secret(2), ["large", "small"])
    assert [read(made, 0.0) for _ in range(4)] == [secret(0), secret(2), secret(1), None]


def test_what_is_forgotten_takes_no_turn_and_what_is_needed_during_its_read_is_read_again() -> None:
    made = order()
    for number in range(4):
        made.need(secret(number), [f"pod{number % 2}"])
    for number in (0, 1, 3):
        made.forget(secret(number))
    assert made.take(0.0, 0.0) == secret(2)
    made.need(secret(2), ["pod0"])
    made.forget(secret(2))
    made.done(secret(2))
    assert (made.take(0.0, 0.0), made.next_at(0.0), len(made)) == (None, None, 0)


def test_one_read_of_an_object_is_under_way_at_a_time() -> None:
    made = order()
    made.need(secret(1), ["a"])
    assert made.take(0.0, 0.0) == secret(1)
    made.need(secret(1), ["a"])
    assert (made.take(0.0, 0.0), made.next_at(0.0), len(made)) == (None, None, 2)
    made.done(secret(1))
    assert made.take(0.0, 0.0) == secret(1)


def test_refreshes_keep_their_pace_and_each_object_its_period() -> None:
    made = order(1, 2, 3)
    assert [read(made, 0.0), read(made, 0.0), made.next_at(0.0)] == [secret(3), None, 0.5]
    assert [read(made, 0.5), read(made, 1.0), made.next_at(0.0)] == [secret(2), secret(1), 30.0]
    assert (read(made, 29.9), read(made, 30.0), made.next_at(60.0)) == (None, secret(3), 60.5)


def test_a_round_takes_as_long_as_the_pace_requires_where_there_is_much_to_refresh() -> None:
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
    made.need(secret(2), ["a"])
    assert read(made, 20.0) == secret(2)
    assert [read(made, 30.5), read(made, 49.9), read(made, 50.0)] == [secret(1), None, secret(2)]


def test_what_is_forgotten_or_not_to_be_refreshed_is_not_read() -> None:
    made = order(1, 2)
    made.need(secret(1), ["a"])
    made.forget(secret(1))
    made.refresh(secret(2), wanted=False)
    assert (read(made, 0.0), made.next_at(0.0), len(made)) == (None, None, 0)


def test_nothing_is_refreshed_where_only_requests_are_served() -> None:
    made = order(1, 2, a_second=0.0)
    assert (read(made, 0.0), made.next_at(0.0), made.period(7.0)) == (None, None, 30.0)
