"""What the service manager asked for, and the datagrams it gets (config.md 5.11)."""

import asyncio
import socket
from pathlib import Path

import pytest

from shared.agent import service_notify
from shared.agent.service_notify import WATCHDOG, keep_pinging, notify, watchdog_interval
from shared.errors import OperatorError

MAIN = 4711


@pytest.mark.parametrize(
    ("microseconds", "process", "seconds"),
    [
        ("", "", 0.0),
        ("", "not a number", 0.0),
        ("30000000", "", 15.0),
        ("30000000", "4711", 15.0),
        ("30000000", "+4711", 15.0),
        ("+3000000", "", 1.5),
        ("1000001", "", 0.5000005),
        ("30000000", "4712", 0.0),
        ("1000", "4712", 0.0),
    ],
)
def test_half_of_what_the_unit_gives_us_if_it_means_us(microseconds: str, process: str, seconds: float) -> None:
    assert watchdog_interval({"WATCHDOG_USEC": microseconds, "WATCHDOG_PID": process}, MAIN) == seconds


@pytest.mark.parametrize(
    ("microseconds", "process", "named"),
    [
        ("0", "", 'WATCHDOG_USEC: is "0", not a positive number'),
        ("-5", "", 'WATCHDOG_USEC: is "-5", not a positive number'),
        ("30s", "", 'WATCHDOG_USEC: is "30s", not a positive number'),
        ("٣", "", "WATCHDOG_USEC"),
        ("9" * 4000, "", "WATCHDOG_USEC"),
        ("1_000_000", "", "WATCHDOG_USEC"),
        ("abc", "4712", "WATCHDOG_USEC"),
        ("30000000", "main", 'WATCHDOG_PID: is "main", not a process id'),
        ("1000000", "", "a second or less"),
        ("1", "4711", "a second or less"),
    ],
)
def test_values_without_sense_refuse_the_start(microseconds: str, process: str, named: str) -> None:
    with pytest.raises(OperatorError, match=named):
        watchdog_interval({"WATCHDOG_USEC": microseconds, "WATCHDOG_PID": process}, MAIN)


def listener(address: str) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(address)
    receiver.setblocking(False)
    return receiver


def test_a_path_and_an_abstract_address_are_reached(tmp_path: Path) -> None:
    with listener(str(tmp_path / "notify")) as file, listener(f"\0{tmp_path}/abstract") as abstract:
        notify("READY=1", str(tmp_path / "notify"))
        notify("READY=1", f"@{tmp_path}/abstract")
        assert file.recv(100) == abstract.recv(100) == b"READY=1"


def test_a_missing_socket_is_an_error_and_a_full_queue_does_not_block(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        notify("READY=1", str(tmp_path / "missing"))
    with listener(str(tmp_path / "notify")), pytest.raises(BlockingIOError):
        for _ in range(10_000):
            notify("READY=1", str(tmp_path / "notify"))


async def test_pings_come_while_it_is_well_and_once_more_when_one_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    health = iter([True, False, True])
    enough = asyncio.Event()

    def send(state: str, address: str) -> None:
        sent.append(state)
        if len(sent) == 2:
            raise BlockingIOError

    def is_well() -> bool:
        try:
            return next(health)
        except StopIteration:
            enough.set()
            return False

    monkeypatch.setattr(service_notify, "notify", send)
    monkeypatch.setattr(service_notify, "_REPEAT_SECONDS", 0.0)
    pinging = asyncio.create_task(keep_pinging(0.0, is_well, "somewhere"))
    await enough.wait()
    pinging.cancel()
    assert sent == [WATCHDOG] * 3


async def test_the_first_ping_comes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process before may have sent its last one an interval ago, and systemd waits for two of them."""
    sent: list[str] = []
    monkeypatch.setattr(service_notify, "notify", lambda state, _address: sent.append(state))
    pinging = asyncio.create_task(keep_pinging(3600.0, lambda: True, "somewhere"))
    await asyncio.sleep(0)  # one turn of the loop, in which the task begins
    pinging.cancel()
    assert sent == [WATCHDOG]
