"""Has one connection to the system bus, with the calls of logind and systemd that a graceful shutdown needs (node.md 3
"Start")."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dbus_fast import BusType, DBusFastError, Message, MessageType, Variant
from dbus_fast.aio import MessageBus

MAX_CONNECT_SECONDS = 10.0
MAX_CALL_SECONDS = 10.0
MAX_CLOSE_SECONDS = 1.0
SHUTDOWN_SIGNAL = "PrepareForShutdown"
IN_PROGRESS = "org.freedesktop.login1.OperationInProgress"  # why logind grants no lock once a shutdown has begun
_SIGHUP = 1
_LOGIND, _LOGIND_PATH = "org.freedesktop.login1", "/org/freedesktop/login1"
_LOGIND_MANAGER = "org.freedesktop.login1.Manager"
_SYSTEMD, _SYSTEMD_PATH = "org.freedesktop.systemd1", "/org/freedesktop/systemd1"
_SYSTEMD_MANAGER = "org.freedesktop.systemd1.Manager"
_BUS, _BUS_PATH = "org.freedesktop.DBus", "/org/freedesktop/DBus"


class LogindError(OSError):
    """logind cannot be reached, or refused. `name` is D-Bus's name of the error, "" where there was no answer."""

    def __init__(self, text: str, name: str = "") -> None:
        self.name = name
        super().__init__(text)


class LogindConnection:
    """Calls logind. Every method raises LogindError."""

    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus
        self._ended: asyncio.Future[None] = asyncio.ensure_future(self._end())

    @classmethod
    async def open(cls, address: str | None = None) -> "LogindConnection":
        """Connect to the system bus, or to the bus at this address."""
        try:
            bus = MessageBus(
                bus_address=address,
                bus_type=BusType.SYSTEM,
                negotiate_unix_fd=True,
                auth_timeout=MAX_CONNECT_SECONDS,
            )
            async with asyncio.timeout(MAX_CONNECT_SECONDS):
                await bus.connect()
        except (OSError, TimeoutError, DBusFastError, EOFError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise LogindError(f"cannot reach logind over D-Bus: {why} (is dbus running?)") from error
        return cls(bus)

    async def watch_shutdown(self, changed: Callable[[bool], None]) -> None:
        """Call `changed` whenever logind says that a shutdown begins (True) or was cancelled (False). A signal of
        another sender, which anybody on the bus may be, only has the caller look, as False does."""
        owner = ""

        def receive(message: Message) -> None:
            if message.message_type is MessageType.SIGNAL and message.member == SHUTDOWN_SIGNAL:
                changed(message.sender == owner and message.body[:1] == [True])

        self._bus.add_message_handler(receive)
        rule = f"type='signal',interface='{_LOGIND_MANAGER}',member='{SHUTDOWN_SIGNAL}',path='{_LOGIND_PATH}'"
        await self._send(Message(_BUS, _BUS_PATH, _BUS, "AddMatch", signature="s", body=[rule]))
        with suppress(LogindError):  # it is not started yet
            answer = await self._send(Message(_BUS, _BUS_PATH, _BUS, "GetNameOwner", signature="s", body=[_LOGIND]))
            owner = str(answer.body[0]) if answer.body else ""

    async def shuts_down(self) -> bool:
        """Return whether a shutdown is in progress."""
        return bool(await self._property("PreparingForShutdown", "b"))

    async def max_delay_seconds(self) -> float:
        """Return for how long logind waits at most for those who delay a shutdown."""
        return int(await self._property("InhibitDelayMaxUSec", "t")) / 1e6

    async def inhibit(self, why: str) -> int:
        """Return a file descriptor that delays a shutdown until it is closed."""
        body = ["shutdown", "kubelet", why, "delay"]
        message = Message(_LOGIND, _LOGIND_PATH, _LOGIND_MANAGER, "Inhibit", signature="ssss", body=body)
        answer = await self._send(message)
        if not answer.unix_fds:
            raise LogindError("logind: Inhibit: the answer has no file descriptor")
        return int(answer.unix_fds[0])

    async def reload(self) -> None:
        """Let logind read its configuration again."""
        body = ["systemd-logind.service", "all", _SIGHUP]
        await self._send(
            Message(_SYSTEMD, _SYSTEMD_PATH, _SYSTEMD_MANAGER, "KillUnit", signature="ssi", body=body), "systemd"
        )

    @property
    def ended(self) -> "asyncio.Future[None]":
        """Done once the connection has ended; to be waited for without cancelling it."""
        return self._ended

    async def _end(self) -> None:
        with suppress(OSError, EOFError, DBusFastError):
            await self._bus.wait_for_disconnect()  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """End the connection. A lock stays."""
        self._bus.disconnect()
        await asyncio.wait({self._ended}, timeout=MAX_CLOSE_SECONDS)
        self._ended.cancel()

    async def _property(self, name: str, signature: str) -> Any:
        message = Message(
            destination=_LOGIND,
            path=_LOGIND_PATH,
            interface="org.freedesktop.DBus.Properties",
            member="Get",
            signature="ss",
            body=[_LOGIND_MANAGER, name],
        )
        answer = await self._send(message)
        value = answer.body[0] if answer.body else None
        if not isinstance(value, Variant) or value.signature != signature:
            raise LogindError(f"logind: Get: the answer has no {name}")
        return value.value

    async def _send(self, message: Message, whom: str = "logind") -> Message:
        try:
            async with asyncio.timeout(MAX_CALL_SECONDS):
                answer = await self._bus.call(message)
        except (OSError, TimeoutError, DBusFastError, EOFError) as error:
            why = str(error) or "no answer in time"
            raise LogindError(f"{whom}: {message.member}: {why}") from error
        if answer is None:
            raise LogindError(f"{whom}: {message.member}: no answer")
        if answer.message_type is MessageType.ERROR:
            text = answer.body[0] if answer.body else answer.error_name
            raise LogindError(f"{whom}: {message.member}: {text}", answer.error_name or "")
        return answer
