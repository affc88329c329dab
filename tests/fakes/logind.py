"""A logind on a real D-Bus of its own: locks, the property and the signal of a shutdown, and its configuration.

It refuses a lock while a shutdown is in progress, and ends the shutdown's delay as logind does: when the last lock is
closed. systemd's KillUnit has it read its configuration again.
"""

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from tests.support.installed.lacking import lack
from tests.support.waits.deadline import WAIT_SECONDS

_DAEMON = Path("/usr/bin/dbus-daemon")
_CHILD = ("setpriv", "--pdeathsig", "KILL", "--", str(_DAEMON))  # it ends with us, however we end
_NAMES = ("org.freedesktop.login1", "org.freedesktop.systemd1")
_MANAGER = "org.freedesktop.login1.Manager"


class FakeLogind:
    """See the module. `address`: of the bus; `drop_in`: the file that a reload reads; `reloads`: how often it did."""

    def __init__(self, directory: Path) -> None:
        self.address = f"unix:path={directory}/bus"
        self.drop_in = directory / "logind.conf.d" / "99-kubelet.conf"
        self.max_delay_seconds = 5
        self.reads_drop_in = True
        self.reloads = 0
        self.reasons: list[str] = []  # of every lock that was ever granted
        self.shuts_down = False
        self.answers: Callable[[Message], Message | bool | None] = lambda message: None  # before this class does
        self.serves = True  # whether it is on the bus
        self.answers_locks = asyncio.Event()  # not set: a lock is granted, and the answer comes later
        self.answers_locks.set()
        self._directory = directory
        self.fewest_locks = 0  # that there were since this was set
        self._locks: dict[int, None] = {}  # read ends of the granted locks

    async def start(self) -> None:
        """Start the bus, and serve on it."""
        await self._start_bus()
        self._bus = await MessageBus(bus_address=self.address, negotiate_unix_fd=True).connect()
        self._bus.add_message_handler(self._answer)
        for name in _NAMES if self.serves else ():
            await self._bus.request_name(name)

    async def restart_bus(self) -> None:
        """End the bus with every connection to it, and start it again; the locks stay."""
        await self._end_bus()
        await self.start()

    async def _start_bus(self) -> None:
        options = ("--session", "--nofork", "--nopidfile", "--print-address=1", f"--address={self.address}")
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        self._daemon = await asyncio.create_subprocess_exec(*_CHILD, *options, stdout=pipe, stderr=nothing)
        assert self._daemon.stdout is not None
        async with asyncio.timeout(WAIT_SECONDS):
            assert await self._daemon.stdout.readline(), "dbus-daemon has ended"  # it prints this once it listens

    async def _end_bus(self) -> None:
        self._bus.disconnect()
        if self._daemon.returncode is None:
            self._daemon.kill()
        await self._daemon.wait()
        (self._directory / "bus").unlink(missing_ok=True)

    async def stop(self) -> None:
        """End the bus, with all connections to it, and all locks."""
        await self._end_bus()
        for end in list(self._locks):
            self._forget(end)

    @property
    def locks(self) -> int:
        """How many locks delay a shutdown."""
        return len(self._locks)

    async def announce(self, *, begins: bool = True) -> None:
        """A shutdown begins, or is cancelled."""
        self.shuts_down = begins
        await self._bus.send(shutdown_signal(begins=begins))

    def _answer(self, message: Message) -> Message | bool | None:
        if message.message_type is not MessageType.METHOD_CALL:
            return None
        if answer := self.answers(message):
            return answer
        match message.member:
            case "Get":
                return Message.new_method_return(message, "v", [self._property(str(message.body[1]))])
            case "Inhibit" if self.shuts_down:
                text = "The operation inhibition has been requested for is already running"
                return Message.new_error(message, "org.freedesktop.login1.OperationInProgress", text)
            case "Inhibit":
                return self._inhibit(message)
            case "KillUnit":
                self.reloads += 1
                if self.reads_drop_in and self.drop_in.exists():
                    found = re.search(r"^InhibitDelayMaxSec=(\d+)$", self.drop_in.read_text(), re.MULTILINE)
                    self.max_delay_seconds = int(found[1]) if found else 5
                return Message.new_method_return(message)
        return None

    def _property(self, name: str) -> Variant:
        if name == "PreparingForShutdown":
            return Variant("b", self.shuts_down)
        return Variant("t", self.max_delay_seconds * 1_000_000)

    def _inhibit(self, message: Message) -> bool:
        assert [message.body[0], message.body[1], message.body[3]] == ["shutdown", "kubelet", "delay"]
        self.reasons.append(message.body[2])
        read_end, write_end = os.pipe()
        self._locks[read_end] = None
        asyncio.get_running_loop().add_reader(read_end, self._closed, read_end)
        self._granting = asyncio.create_task(self._grant(message, write_end))
        return True

    async def _grant(self, message: Message, write_end: int) -> None:
        await self.answers_locks.wait()
        await self._bus.send(Message.new_method_return(message, "h", [0], unix_fds=[write_end]))
        os.close(write_end)

    def _closed(self, end: int) -> None:
        if not os.read(end, 1):
            self._forget(end)

    def _forget(self, end: int) -> None:
        asyncio.get_running_loop().remove_reader(end)
        del self._locks[end]
        self.fewest_locks = min(self.fewest_locks, len(self._locks))
        os.close(end)


def shutdown_signal(*, begins: bool) -> Message:
    """Return the signal by which logind says that a shutdown begins, or was cancelled."""
    return Message.new_signal("/org/freedesktop/login1", _MANAGER, "PrepareForShutdown", "b", [begins])


@asynccontextmanager
async def a_logind(**values: Any) -> AsyncIterator[FakeLogind]:
    """Serve a logind with these attributes while it holds."""
    if not _DAEMON.exists():
        lack(f"{_DAEMON} is not installed (apt-get install dbus-daemon)")
    with tempfile.TemporaryDirectory(prefix="bulkhead-logind-") as directory:
        logind = FakeLogind(Path(directory))
        for name, value in values.items():
            setattr(logind, name, value)
        await logind.start()
        try:
            yield logind
        finally:
            await logind.stop()
