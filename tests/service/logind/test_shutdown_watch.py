"""The lock that delays a shutdown, and whether one is in progress, on a real D-Bus (node.md 3 "Start")."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from dbus_fast import Message
from dbus_fast.aio import MessageBus

from shared.logind import max_delay, shutdown_watch
from shared.logind.connection import LogindConnection, LogindError
from shared.logind.max_delay import drop_in_text, raise_max_delay
from shared.logind.shutdown_watch import ShutdownWatch
from shared.time.backoff import Backoff
from tests.fakes.logind import FakeLogind, a_logind, shutdown_signal
from tests.support.waits.deadline import WAIT_SECONDS

WHY = "Kubelet needs time to handle node shutdown"


class Watching:
    """A watch, and what it has reported."""

    def __init__(self, address: str, prepare: Callable[[LogindConnection], Awaitable[None]] | None = None) -> None:
        self.seen: list[bool] = []
        self.troubles: list[str | None] = []
        self.watch = ShutdownWatch(
            WHY, on_change=self.seen.append, trouble=self.troubles.append, prepare=prepare, address=address
        )


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def watching(
    address: str, prepare: Callable[[LogindConnection], Awaitable[None]] | None = None
) -> AsyncIterator[Watching]:
    found = Watching(address, prepare)
    task = asyncio.create_task(found.watch.run())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_holds_a_lock_until_it_is_released_and_takes_one_after_a_cancellation() -> None:
    async with a_logind() as logind, watching(logind.address) as found:
        await until(lambda: found.seen)
        assert (logind.locks, logind.reasons, found.seen) == (1, [WHY], [False])
        await logind.announce()
        await until(lambda: found.seen[-1])
        assert logind.locks == 1
        found.watch.release()
        await until(lambda: logind.locks == 0)
        await logind.announce(begins=False)
        await until(lambda: logind.locks == 1)
        await until(lambda: found.seen[-1] is False)
        assert found.watch.has_lock


async def test_it_finds_a_shutdown_that_began_before_it_without_a_lock() -> None:
    async with a_logind(shuts_down=True) as logind, watching(logind.address) as found:
        await until(lambda: found.seen)
        assert (found.seen, logind.locks) == ([True], 0)
        assert [line for line in found.troubles if line] == []


async def test_the_end_of_the_process_releases_the_lock() -> None:
    async with a_logind() as logind:
        async with watching(logind.address) as found:
            await until(lambda: found.seen)
        await until(lambda: logind.locks == 0)


async def test_a_second_signal_of_the_same_shutdown_changes_nothing() -> None:
    async with a_logind() as logind, watching(logind.address) as found:
        await until(lambda: found.seen)
        for number in (2, 4):  # at the signal, and when logind was asked
            await logind.announce()
            await until(lambda number=number: found.seen.count(True) == number)  # type: ignore[misc]
        assert (found.seen, logind.locks) == ([False, True, True, True, True], 1)


async def test_a_signal_counts_although_logind_then_answers_no_question() -> None:
    async with a_logind() as logind, watching(logind.address) as found:
        await until(lambda: found.seen)
        logind.answers = lambda message: message.member == "Get"  # True = there is no answer
        await logind.announce()
        await until(lambda: found.seen[-1])


async def test_a_signal_that_is_not_of_logind_begins_no_shutdown() -> None:
    async with a_logind() as logind, watching(logind.address) as found:
        await until(lambda: found.seen)
        other = await MessageBus(bus_address=logind.address).connect()
        await other.send(shutdown_signal(begins=True))
        await until(lambda: len(found.seen) == 2)
        other.disconnect()
        assert found.seen == [False, False]


async def test_an_answer_of_another_form_keeps_the_lock() -> None:
    async with a_logind() as logind, watching(logind.address) as found:
        await until(lambda: found.seen)

        def oddly(message: Message) -> Message | None:
            return Message.new_method_return(message, "s", ["yes"]) if message.member == "Get" else None

        logind.answers = oddly
        await logind.announce()
        await until(lambda: "logind: Get: the answer has no PreparingForShutdown" in found.troubles)
        assert (logind.locks, found.watch.has_lock) == (1, True)


async def test_it_has_its_lock_before_it_raises_the_time_that_logind_waits() -> None:
    async with a_logind() as logind:
        held, locks = asyncio.Event(), []

        async def prepare(connection: LogindConnection) -> None:
            locks.append(logind.locks)
            await held.wait()  # systemd does not answer

        async with watching(logind.address, prepare) as found:
            await until(lambda: locks)
            assert (locks, found.seen) == ([1], [False])
            await logind.announce()
            await until(lambda: found.seen[-1])
            held.set()


async def test_a_release_beside_a_cancellation_costs_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_logind() as logind, watching(logind.address) as found:
        await until(lambda: found.seen)
        await logind.announce()
        await until(lambda: found.seen.count(True) == 2)  # at the signal, and when logind was asked
        asks, answers = LogindConnection.shuts_down, []

        async def shuts_down(connection: LogindConnection) -> bool:
            answers.append(await asks(connection))
            if answers == [False]:
                found.watch.release()  # its owner does not know of the cancellation yet
            return answers[-1]

        monkeypatch.setattr(LogindConnection, "shuts_down", shuts_down)
        await logind.announce(begins=False)
        await until(lambda: found.seen[-1] is False)
        await until(lambda: logind.locks == 1)
        assert len(logind.reasons) == 2


async def test_after_a_restart_of_the_bus_it_looks_again_and_has_kept_its_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutdown_watch, "RECONNECTS", Backoff(initial=0.02))
    async with a_logind() as logind, watching(logind.address) as found:
        await until(lambda: found.seen)
        logind.shuts_down = True  # no signal says so
        await logind.restart_bus()
        await until(lambda: found.seen[-1])
        assert logind.locks == 1
        assert any("the connection to D-Bus has ended" in str(line) for line in found.troubles)
        assert found.troubles[-1] is None


async def test_once_logind_has_answered_a_failure_is_the_first_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[int] = []

    class Counted:
        def delay(self, count: int) -> float:
            failures.append(count)
            return 0.01

    def refuse(message: Message) -> Message | None:
        return Message.new_error(message, "org.example.Busy", "busy") if message.member == "Get" else None

    monkeypatch.setattr(shutdown_watch, "RECONNECTS", Counted())
    async with a_logind(answers=refuse) as logind, watching(logind.address) as found:
        await until(lambda: len(failures) > 2)
        logind.answers = lambda message: None
        await until(lambda: found.seen)
        before, logind.answers = len(failures), refuse
        await logind.announce(begins=False)
        await until(lambda: len(failures) > before)
        assert (failures[:3], failures[before]) == ([1, 2, 3], 1)


async def test_without_a_bus_one_line_says_so(tmp_path: Path) -> None:
    async with watching(f"unix:path={tmp_path}/none") as found:
        await until(lambda: found.troubles)
    assert found.troubles[0] == "cannot reach logind over D-Bus: No such file or directory (is dbus running?)"
    assert found.seen == []


async def test_without_logind_one_line_says_so() -> None:
    async with a_logind(serves=False) as logind, watching(logind.address) as found:
        await until(lambda: found.troubles)
        assert str(found.troubles[0]).startswith("logind: Get: The name org.freedesktop.login1 was not provided")


async def raised(logind: FakeLogind, seconds: float) -> None:
    connection = await LogindConnection.open(logind.address)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(max_delay, "DROP_IN", logind.drop_in)
            await raise_max_delay(connection, seconds)
    finally:
        await connection.close()


async def test_the_time_that_logind_waits_is_raised_by_a_drop_in() -> None:
    async with a_logind() as logind:
        await raised(logind, 30.5)
        assert logind.drop_in.read_text() == "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=31\n"
        assert (logind.drop_in.stat().st_mode & 0o777, logind.drop_in.parent.stat().st_mode & 0o777) == (0o644, 0o755)
        assert (logind.max_delay_seconds, logind.reloads) == (31, 1)


async def test_a_time_that_suffices_stays() -> None:
    async with a_logind(max_delay_seconds=60) as logind:
        await raised(logind, 30)
        assert (logind.drop_in.exists(), logind.reloads) == (False, 0)


async def test_a_time_that_another_file_sets_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(max_delay, "WAITS_SECONDS", (0.01,))
    async with a_logind(reads_drop_in=False) as logind:
        with pytest.raises(LogindError, match=r"logind waits 5 s at most for a shutdown, and pods have 30 s: look for"):
            await raised(logind, 30)


def test_the_drop_in_has_whole_seconds() -> None:
    assert drop_in_text(30).splitlines()[-1] == "InhibitDelayMaxSec=30"
