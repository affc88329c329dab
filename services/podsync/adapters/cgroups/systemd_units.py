"""Starts, changes and stops slices of systemd over D-Bus (node.md 4.3).
Knows no pod. Only the cgroup driver systemd uses it. Has one connection to the system bus, which it opens when a call
needs it, and again after it broke.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dbus_fast import BusType, DBusFastError, Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from services.podsync.core.cgroups.systemd_properties import Property, version_number
from shared.process.deadlines import in_turn

log = logging.getLogger(__name__)

MAX_CONNECT_SECONDS = 10.0
MAX_CALL_SECONDS = 30.0  # for an answer, and again for the end of a job
_NAME, _PATH = "org.freedesktop.systemd1", "/org/freedesktop/systemd1"
_BUS, _BUS_PATH = "org.freedesktop.DBus", "/org/freedesktop/DBus"
_MANAGER = "org.freedesktop.systemd1.Manager"
_UNIT_EXISTS, _NO_SUCH_UNIT = "org.freedesktop.systemd1.UnitExists", "org.freedesktop.systemd1.NoSuchUnit"
_DONE = "done"
_MAX_JOBS = 256  # ended jobs that are kept until their result is read


class SystemdError(OSError):
    """systemd cannot be reached, or refused. `name` is D-Bus's name of the error, "" where there was no answer."""

    def __init__(self, text: str, name: str = "") -> None:
        self.name = name
        super().__init__(text)


class SystemdUnits:
    """Calls systemd's manager of units, `org.freedesktop.systemd1` on the system bus."""

    def __init__(self, address: str | None = None) -> None:
        self._address = address
        self._bus: MessageBus | None = None
        self._connecting = asyncio.Lock()
        self._ended: deque[tuple[str, str]] = deque(maxlen=_MAX_JOBS)  # job, result
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self.version = 0  # of systemd, once connected

    async def start(self, unit: str, properties: Sequence[Property]) -> bool:
        """Start the slice, wait for it and return whether it is new. Raises SystemdError."""
        try:
            job = await self._call("StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "replace", _boxed(properties), [])
        except SystemdError as error:
            if error.name == _UNIT_EXISTS:
                return False
            raise
        await self._wait_for_job(job, f"starting {unit}")
        return True

    async def set_properties(self, unit: str, properties: Sequence[Property]) -> None:
        """Change the properties of a running slice until the machine restarts. Raises SystemdError."""
        if properties:
            await self._call("SetUnitProperties", "sba(sv)", unit, True, _boxed(properties))

    async def stop(self, unit: str) -> None:
        """Stop the slice with all that is in it, and have systemd forget it; an unknown slice is no error."""
        try:
            job = await self._call("StopUnit", "ss", unit, "replace")
            await self._wait_for_job(job, f"stopping {unit}")
        except SystemdError as error:
            if error.name != _NO_SUCH_UNIT:
                raise
        try:
            await self._call("ResetFailedUnit", "s", unit)
        except SystemdError as error:
            if not error.name:  # a named error: there is no failure to reset
                raise

    async def close(self) -> None:
        """Close the connection to the bus; the next call opens it again."""
        bus, self._bus = self._bus, None
        if bus is not None:
            await _leave(bus)

    async def connect(self) -> MessageBus:
        """Return the open connection, or open one. Raises SystemdError."""
        async with in_turn(self._connecting, "the connection to systemd"):
            if self._bus is not None and self._bus.connected:
                return self._bus
            bus = MessageBus(bus_address=self._address, bus_type=BusType.SYSTEM, auth_timeout=MAX_CONNECT_SECONDS)
            try:
                async with asyncio.timeout(MAX_CONNECT_SECONDS):
                    await bus.connect()
            except (OSError, TimeoutError, DBusFastError, EOFError) as error:
                why = getattr(error, "strerror", None) or str(error) or type(error).__name__
                raise SystemdError(f"cannot reach systemd over D-Bus: {why} (is dbus running?)") from error
            bus.add_message_handler(self._on_message)
            try:
                await self._introduce(bus)
            except BaseException:
                await _leave(bus)
                raise
            self._bus = bus
            return bus

    async def _introduce(self, bus: MessageBus) -> None:
        """Subscribe to the ends of jobs, and read systemd's version."""
        rule = f"type='signal',sender='{_NAME}',interface='{_MANAGER}',member='JobRemoved'"
        await self._send(bus, Message(_BUS, _BUS_PATH, _BUS, "AddMatch", signature="s", body=[rule]))
        properties = "org.freedesktop.DBus.Properties"
        request = Message(_NAME, _PATH, properties, "Get", signature="ss", body=[_MANAGER, "Version"])
        self.version = version_number(str((await self._send(bus, request)).value))

    async def _call(self, member: str, signature: str, *body: Any) -> Any:
        message = Message(
            destination=_NAME, path=_PATH, interface=_MANAGER, member=member, signature=signature, body=list(body)
        )
        return await self._send(await self.connect(), message)

    async def _send(self, bus: MessageBus, message: Message) -> Any:
        """Send the message and return the first value of the answer. Raises SystemdError."""
        try:
            async with asyncio.timeout(MAX_CALL_SECONDS):
                answer = await bus.call(message)
        except (OSError, TimeoutError, DBusFastError, EOFError) as error:
            if not isinstance(error, TimeoutError) and bus is self._bus:
                await self.close()
            why = str(error) or "no answer in time"
            raise SystemdError(f"systemd: {message.member}: {why}") from error
        if answer is None:
            raise SystemdError(f"systemd: {message.member}: no answer")
        if answer.message_type is MessageType.ERROR:
            text = answer.body[0] if answer.body else answer.error_name
            raise SystemdError(f"systemd: {message.member}: {text}", answer.error_name or "")
        return answer.body[0] if answer.body else None

    async def _wait_for_job(self, job: str, what: str) -> None:
        """Wait until the job is over; it may have ended before its number was known. Raises SystemdError."""
        result = next((result for ended, result in self._ended if ended == job), "")
        if not result:
            future = asyncio.get_running_loop().create_future()
            self._waiting[job] = future
            try:
                async with asyncio.timeout(MAX_CALL_SECONDS):
                    result = await future
            except TimeoutError:
                raise SystemdError(f"systemd: {what} took longer than {MAX_CALL_SECONDS:.0f} s") from None
            finally:
                self._waiting.pop(job, None)
        if result != _DONE:
            raise SystemdError(f"systemd: {what} ended as {result}")

    def _on_message(self, message: Message) -> None:
        if message.member != "JobRemoved" or message.interface != _MANAGER:
            return
        _, job, _, result = message.body
        self._ended.append((job, result))
        future = self._waiting.get(job)
        if future is not None and not future.done():
            future.set_result(result)


async def _leave(bus: MessageBus) -> None:
    bus.disconnect()
    with suppress(OSError, EOFError, TimeoutError, DBusFastError):  # the connection may be broken
        async with asyncio.timeout(1.0):
            await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]


def _boxed(properties: Sequence[Property]) -> list[list[Any]]:
    return [[name, Variant(signature, value)] for name, signature, value in properties]
