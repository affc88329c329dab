"""Talks to systemd: READY=1 and WATCHDOG=1 to `$NOTIFY_SOCKET` (config.md 5.11).

Computes when a ping is due and sends it; whether the agent is healthy is decided by the caller.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping

from shared.errors import OperatorError
from shared.log.klog import structured

READY, WATCHDOG = "READY=1", "WATCHDOG=1"

log = logging.getLogger(__name__)

_MIN_WATCHDOG_MICROSECONDS = 1_000_000  # that WATCHDOG_USEC must exceed
_REPEAT_SECONDS = 1.0  # until the one repetition of a ping that could not be sent
_WHERE = "set WatchdogSec= of the unit"


def watchdog_interval(environment: Mapping[str, str], main_process: int) -> float:
    """Return seconds between two pings, 0 when no watchdog is set. Raises OperatorError for values that make no sense.

    `main_process` is the one systemd knows the unit by.
    """
    timeout, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not timeout:
        return 0.0
    microseconds = _number(timeout)
    if microseconds is None or microseconds <= 0:
        raise OperatorError(f'is "{timeout}", not a positive number', where="WATCHDOG_USEC", remedy=_WHERE)
    if process and _number(process) is None:
        raise OperatorError(f'is "{process}", not a process id', where="WATCHDOG_PID", remedy="unset it")
    if process and _number(process) != main_process:
        return 0.0
    if microseconds <= _MIN_WATCHDOG_MICROSECONDS:
        what = f"is {timeout}: a second or less cannot be kept"
        raise OperatorError(what, where="WATCHDOG_USEC", remedy=f"{_WHERE} to more than 1s, or to 0")
    return microseconds / 2e6


def notify(state: str, address: str) -> None:
    """Send one datagram; `address` is `$NOTIFY_SOCKET`, with `@` for an abstract one. Raises OSError, never blocks."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.setblocking(False)
        sender.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)


async def keep_pinging(interval: float, is_well: Callable[[], bool], address: str) -> None:
    """Ping at once, then every `interval` seconds, for ever, while it is well; silence is how systemd learns that it is
    not. The first ping does not wait, because the process before this one may have ended just before its next one."""
    while True:
        if is_well():
            await _ping(address)
        await asyncio.sleep(interval)


async def _ping(address: str) -> None:
    try:
        notify(WATCHDOG, address)
    except OSError:
        await asyncio.sleep(_REPEAT_SECONDS)
        try:
            notify(WATCHDOG, address)
        except OSError as error:
            log.warning("%s", structured("Failed to ping the systemd watchdog", err=error))


def service_socket() -> str:
    """Return `$NOTIFY_SOCKET`, "" when no service manager listens."""
    return os.environ.get("NOTIFY_SOCKET", "")


def _number(text: str) -> int | None:
    """Return the number in the text as Go reads an integer: a sign and ASCII digits, nothing else."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= 19 else None
