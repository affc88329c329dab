"""Which connection ends when there are too many, or they have sent too much."""

import random

import pytest

from services.server.core.listening.client_address import group_of, shown_address
from services.server.core.listening.connections import (
    HEALTHZ,
    LOCAL,
    MAIN,
    READ_ONLY,
    ConnectionLimits,
    ConnectionTable,
    OpenConnection,
)
from shared.model.frozen_copy import replace

LIMITS = ConnectionLimits(
    unauthorized=6, unauthorized_of_address=4, unauthorized_bytes=1000, authorized=5, authorized_of_address=4
)


@pytest.fixture
def table() -> ConnectionTable[OpenConnection]:
    return ConnectionTable[OpenConnection](LIMITS)


def connection(address: str = "a") -> OpenConnection:
    return OpenConnection(address)


def opened(table: ConnectionTable[OpenConnection], address: str, count: int) -> list[OpenConnection]:
    connections = [connection(address) for _ in range(count)]
    for each in connections:
        assert not table.open(each)
    return connections


def test_beyond_an_addresss_share_its_longest_idle_connection_ends(table: ConnectionTable[OpenConnection]) -> None:
    opened(table, "b", 1)
    first, second, third, fourth = opened(table, "a", 4)
    first.busy = True
    assert table.open(connection()) == [second]  # the first has a request in progress
    third.busy = True
    table.finish(third)  # a moment ago: the fourth idles for longer
    assert table.open(connection()) == [fourth]


def test_where_all_have_a_request_in_progress_the_oldest_ends(table: ConnectionTable[OpenConnection]) -> None:
    connections = opened(table, "a", 4)
    for each in connections:
        each.busy = True
    assert table.open(connection()) == connections[:1]


def test_beyond_the_sum_one_of_the_address_with_the_most_ends(table: ConnectionTable[OpenConnection]) -> None:
    opened(table, "a", 2)
    greedy = opened(table, "b", 3)
    opened(table, "c", 1)
    assert table.open(connection("d")) == greedy[:1]
    assert len(table) == table.unauthorized == 6


def test_the_newest_connection_is_never_the_one_that_ends(table: ConnectionTable[OpenConnection]) -> None:
    for number in range(100):
        new = connection(f"{number % 3}")
        assert new not in table.open(new)


def test_authorized_connections_neither_end_nor_count_among_the_others(table: ConnectionTable[OpenConnection]) -> None:
    streams = opened(table, "a", 3)
    assert all(table.count_as_authorized(each) for each in streams)
    opened(table, "a", 4)
    assert table.open(connection()) != []
    assert len(table) == 7
    assert table.hold(streams[0], 10_000) == []


def test_there_are_only_so_many_authorized_ones_of_all_and_of_one_address(
    table: ConnectionTable[OpenConnection],
) -> None:
    for address, granted in (("a", 4), ("b", 1)):
        connections = opened(table, address, granted)
        assert all(table.count_as_authorized(each) for each in connections)
        [refused] = opened(table, address, 1)
        assert not table.count_as_authorized(refused)
        assert table.count_as_authorized(connections[0])  # its next request
    table.close(connections[0])
    assert table.count_as_authorized(refused)


def test_beyond_the_bytes_the_connection_that_holds_the_most_ends(table: ConnectionTable[OpenConnection]) -> None:
    small, large, new = opened(table, "a", 3)
    assert table.hold(small, 300) == []
    assert table.hold(large, 600) == []
    assert table.hold(new, 101) == [large]
    assert table.held == 401
    assert table.hold(new, 1001) == [new]
    assert table.held == 300


def test_what_is_answered_is_no_longer_held(table: ConnectionTable[OpenConnection]) -> None:
    [one] = opened(table, "a", 1)
    for _ in range(10):
        assert table.hold(one, 900) == []
        assert table.hold(one, 20) == []
    assert table.held == 20
    table.hold(one, 500)
    table.count_as_authorized(one)
    assert table.held == 0


def test_a_connection_that_ended_is_forgotten_whatever_comes_for_it(table: ConnectionTable[OpenConnection]) -> None:
    [one] = opened(table, "a", 1)
    table.close(one)
    table.close(one)
    table.finish(one)
    assert table.hold(one, 5) == table.send(one) == []
    assert not table.count_as_authorized(one)
    assert (len(table), table.held, table.unauthorized) == (0, 0, 0)


def test_beyond_the_large_answers_the_one_that_waited_longest_ends() -> None:
    table = ConnectionTable[OpenConnection](replace(LIMITS, large_answers=2))
    first, second, third, fourth = opened(table, "a", 4)
    assert table.send(first) == table.send(second) == []
    table.sent(first)
    assert table.send(third) == []
    assert table.send(fourth) == [second]


def test_the_limits_hold_and_the_counts_add_up_whatever_happens(subtests: pytest.Subtests) -> None:
    for seed in range(20):
        with subtests.test(str(seed)):
            chance, table = random.Random(seed), ConnectionTable[OpenConnection](LIMITS)
            live: set[OpenConnection] = set()
            for _ in range(500):
                one = chance.choice([*live, connection()])  # the last one is not in the table
                match chance.randrange(7):
                    case 0 | 1:
                        live |= {new := connection(chance.choice("abcd"))}
                        live -= set(table.open(new))
                    case 2:
                        table.close(one)
                        live.discard(one)
                    case 3:
                        one.busy = not one.busy
                        table.finish(one)
                    case 4 | 5:
                        live -= set(table.hold(one, chance.randrange(400)))
                    case _:
                        table.count_as_authorized(one)
                assert len(table) == len(live)
                assert table.unauthorized <= LIMITS.unauthorized
                assert table.held <= LIMITS.unauthorized_bytes
            for one in live:
                table.close(one)
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
    table = ConnectionTable[OpenConnection](LOCAL)
    for each in opened(table, "", 1000):
        each.busy = True
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
