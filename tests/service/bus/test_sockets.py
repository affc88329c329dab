"""What a socket receives reaches its taker: all of it, in order, without keeping others from their turns."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from bus.context import Context, Socket, new_context, new_socket, send_now
from bus.sockets import MAX_BURST_MESSAGES, Inlet
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
def context() -> Iterator[Context]:
    made = new_context()
    yield made
    made.term()


@pytest.fixture
def pair(context: Context, tmp_path: Path) -> Iterator[tuple[Socket, Socket]]:
    one, other = new_socket(context, zmq.PAIR, linger=0), new_socket(context, zmq.PAIR, linger=0)
    one.bind(f"ipc://{tmp_path}/pair")
    other.connect(f"ipc://{tmp_path}/pair")
    assert one.poll(5000, zmq.POLLOUT), "not connected"
    yield one, other
    one.close()
    other.close()


async def until(true: Any) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not true():
            await asyncio.sleep(0.001)


async def test_what_came_before_it_was_opened_and_more_than_one_burst_arrives_in_order(
    pair: tuple[Socket, Socket],
) -> None:
    taken: list[bytes] = []
    turns: list[int] = []
    for number in range(3 * MAX_BURST_MESSAGES):
        assert send_now(pair[0], [str(number).encode()]) is None
    assert await asyncio.to_thread(pair[1].poll, 5000)
    await asyncio.sleep(0.05)

    def take(message: list[bytes]) -> None:
        if not taken:
            asyncio.get_running_loop().call_soon(lambda: turns.append(len(taken)))
        taken.append(message[0])

    inlet = Inlet(pair[1], take)
    inlet.open()
    await until(lambda: len(taken) == 3 * MAX_BURST_MESSAGES)
    assert taken == [str(number).encode() for number in range(3 * MAX_BURST_MESSAGES)]
    assert turns[0] <= MAX_BURST_MESSAGES, "others got their turn after one burst"
    inlet.close()


async def test_no_message_waits_because_a_send_on_the_same_socket_reset_the_descriptor(
    pair: tuple[Socket, Socket],
) -> None:
    taken: list[bytes] = []
    inlet = Inlet(pair[1], lambda message: taken.append(message[0]))
    inlet.open()
    await asyncio.sleep(0.01)
    assert send_now(pair[0], [b"x"]) is None
    deadline = time.monotonic() + WAIT_SECONDS
    while not int(pair[1].getsockopt(zmq.EVENTS)) & zmq.POLLIN:  # as a send does: from here on the descriptor is silent
        assert time.monotonic() < deadline
    assert send_now(pair[1], [b"y"]) is None
    inlet.look_again()
    await until(lambda: taken)
    inlet.close()


async def test_a_message_that_cannot_be_taken_costs_itself_alone(pair: tuple[Socket, Socket]) -> None:
    taken: list[bytes] = []
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))

    def take(message: list[bytes]) -> None:
        taken.append(message[0])
        if message[0] == b"2":
            raise ValueError("as ordered")

    inlet = Inlet(pair[1], take)
    inlet.open()
    for text in (b"1", b"2", b"3"):
        assert send_now(pair[0], [text]) is None
    await until(lambda: len(taken) == 3)
    assert taken == [b"1", b"2", b"3"] and [type(error) for error in reported] == [ValueError]
    inlet.close()


async def test_a_closed_inlet_takes_nothing_also_in_the_middle_of_a_burst(pair: tuple[Socket, Socket]) -> None:
    taken: list[bytes] = []

    def take(message: list[bytes]) -> None:
        taken.append(message[0])
        inlet.close()

    inlet = Inlet(pair[1], take)
    inlet.open()
    for text in (b"1", b"2"):
        assert send_now(pair[0], [text]) is None
    await until(lambda: taken)
    await asyncio.sleep(0.05)
    assert taken == [b"1"]
