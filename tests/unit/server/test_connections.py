"""Which connection ends when there are too many, or they have sent too much."""

import random

import pytest

from services.server.core.connections import (
    HEALTHZ,
    LOCAL,
    MAIN,
    READ_ONLY,
    ConnectionLimits,
    ConnectionTable,
    group_of,
    shown_address,
)

LIMITS = ConnectionLimits(
    unauthorized=6, unauthorized_of_address=4, unauthorized_bytes=1000, authorized=5, authorized_of_address=4
)


@pytest.fixture
def table() -> ConnectionTable:
    return ConnectionTable(LIMITS)


def opened(table: ConnectionTable, address: str, count: int) -> list[int]:
    numbers = []
    for _ in range(count):
        number, ended = table.open(address)
        assert not ended
        numbers.append(number)
    return numbers


def test_beyond_an_addresss_share_its_longest_idle_connection_ends(table: ConnectionTable) -> None:
    opened(table, "b", 1)
    first, second, third, fourth = opened(table, "a", 4)
    table.begin(first)
    assert table.open("a")[1] == [second]  # the first has a request under way
    table.begin(third)
    table.finish(third)  # a moment ago: the fourth idles for longer
    assert table.open("a")[1] == [fourth]


def test_where_all_have_a_request_under_way_the_oldest_ends(table: ConnectionTable) -> None:
    numbers = opened(table, "a", 4)
    for number in numbers:
        table.begin(number)
    assert table.open("a")[1] == numbers[:1]


def test_beyond_the_sum_one_of_the_address_with_the_most_ends(table: ConnectionTable) -> None:
    opened(table, "a", 2)
    greedy = opened(table, "b", 3)
    opened(table, "c", 1)
    assert table.open("d")[1] == greedy[:1]
    assert len(table) == table.unauthorized == 6


def test_the_newest_connection_is_never_the_one_that_ends(table: ConnectionTable) -> None:
    for number in range(100):
        new, ended = table.open(f"{number % 3}")
        assert new not in ended


def test_authorized_connections_neither_end_nor_count_among_the_others(table: ConnectionTable) -> None:
    streams = opened(table, "a", 3)
    assert all(table.count_as_authorized(number) for number in streams)
    opened(table, "a", 4)
    assert table.open("a")[1] != []
    assert len(table) == 7
    assert table.hold(streams[0], 10_000) == []


def test_there_are_only_so_many_authorized_ones_of_all_and_of_one_address(table: ConnectionTable) -> None:
    for address, granted in (("a", 4), ("b", 1)):
        numbers = opened(table, address, granted)
        assert all(table.count_as_authorized(number) for number in numbers)
        [refused] = opened(table, address, 1)
        assert not table.count_as_authorized(refused)
        assert table.count_as_authorized(numbers[0])  # its next request
    table.close(numbers[0])
    assert table.count_as_authorized(refused)


def test_beyond_the_bytes_the_connection_that_holds_the_most_ends(table: ConnectionTable) -> None:
    small, large, new = opened(table, "a", 3)
    assert table.hold(small, 300) == []
    assert table.hold(large, 600) == []
    assert table.hold(new, 101) == [large]
    assert table.held == 401
    assert table.hold(new, 900) == [new]
    assert table.held == 300


def test_what_is_answered_is_no_longer_held(table: ConnectionTable) -> None:
    [number] = opened(table, "a", 1)
    for _ in range(10):
        assert table.hold(number, 900) == []
        table.set_held(number, 20)
    table.hold(number, 500)
    table.release(number, 400)
    assert table.held == 120
    table.release(number, 400)
    assert table.held == 0
    table.hold(number, 500)
    table.count_as_authorized(number)
    assert table.held == 0


def test_a_connection_that_ended_is_forgotten_whatever_comes_for_it(table: ConnectionTable) -> None:
    [number] = opened(table, "a", 1)
    table.close(number)
    table.close(number)
    table.begin(number)
    table.finish(number)
    table.set_held(number, 5)
    assert table.hold(number, 5) == []
    assert not table.count_as_authorized(number)
    assert (len(table), table.held, table.unauthorized) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_the_limits_hold_and_the_counts_add_up_whatever_happens(seed: int) -> None:
    chance, table = random.Random(seed), ConnectionTable(LIMITS)
    live: set[int] = set()
    for _ in range(500):
        number = chance.choice([*live, 0])
        match chance.randrange(7):
            case 0 | 1:
                new, ended = table.open(chance.choice("abcd"))
                live = (live | {new}) - set(ended)
            case 2:
                table.close(number)
                live.discard(number)
            case 3:
                chance.choice([table.begin, table.finish])(number)
            case 4:
                live -= set(table.hold(number, chance.randrange(400)))
            case 5:
                table.set_held(number, chance.randrange(100))
            case _:
                table.count_as_authorized(number)
        assert len(table) == len(live)
        assert table.unauthorized <= LIMITS.unauthorized
        assert 0 <= table.held <= LIMITS.unauthorized_bytes + 100 * LIMITS.unauthorized
    for number in live:
        table.close(number)
    assert (len(table), table.held, table.unauthorized) == (0, 0, 0)


def test_one_address_never_has_all_of_a_listener() -> None:
    for limits in (MAIN, READ_ONLY, HEALTHZ):
        assert limits.unauthorized_of_address < limits.unauthorized
    assert MAIN.authorized_of_address < MAIN.authorized
    assert MAIN.authorized_of_address >= 4000  # idle streams, nearly all of one API server


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_addresses_are_counted_by_what_one_host_has(address: str, group: str) -> None:
    assert group_of(address) == group


def test_on_the_local_socket_the_logs_of_a_thousand_containers_are_followed_at_once() -> None:
    table = ConnectionTable(LOCAL)
    for number in opened(table, "", 1000):
        table.begin(number)
    assert len(table) == 1000


@pytest.mark.parametrize(
    ("remote", "shown"),
    [
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::ffff:1", "2001:db8::ffff:1"),
        ("", ""),
        (None, ""),
    ],
)
def test_an_ipv4_client_of_a_listener_of_both_families_is_shown_as_such(remote: str | None, shown: str) -> None:
    assert shown_address(remote) == shown
