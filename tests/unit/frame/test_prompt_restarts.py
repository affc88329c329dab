"""supervisord's poll ends with a signal, and does not wait in its first turn and after the end of a process."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from supervisor.poller import PollPoller
from supervisor.states import SupervisorStates

from services.frame import prompt_restarts
from services.frame.prompt_restarts import RUNNING, restart_promptly


@pytest.fixture(autouse=True)
def pipes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """The pipes that were made; the last one is closed where no cleanup has done so."""
    made: list[tuple[int, int]] = []
    wakeup = prompt_restarts._wakeup

    def noted() -> tuple[int, int]:
        made.append(wakeup())
        return made[-1]

    monkeypatch.setattr(prompt_restarts, "_wakeup", noted)
    yield made
    if signal.set_wakeup_fd(-1) >= 0:
        for fd in made[-1]:
            os.close(fd)


class Supervisord:
    """Its options and its poller, on a clock of its own: a poll waits until its end or the next signal."""

    def __init__(self) -> None:
        self.mood, self.now = SupervisorStates.RUNNING, 100.0
        self.poller: Any = self
        self.signals: list[tuple[float, signal.Signals]] = []  # the time at which each comes
        self._ended: list[int] = []
        self._forks = 0
        restart_promptly(self, lambda: self.now)

    def fork(self) -> int:
        self._forks += 1
        return self._forks

    def waitpid(self) -> tuple[int | None, int | None]:
        return (self._ended.pop(0), 9) if self._ended else (None, None)

    def cleanup(self) -> None:
        pass

    def register_readable(self, fd: int) -> None:
        self.woken = fd

    def poll(self, timeout: float) -> tuple[list[int], list[int]]:
        if self.signals and self.signals[0][0] <= self.now + timeout:
            at, number = self.signals.pop(0)
            self.now = max(self.now, at)
            wakeup = signal.set_wakeup_fd(-1)
            os.write(wakeup, bytes([number]))
            signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
            return [self.woken], []
        self.now += timeout
        return [], []

    def turn(self) -> float:
        """The seconds its poll takes."""
        before = self.now
        assert self.poller.poll(1) == ([], [])
        return round(self.now - before, 3)

    def collect(self, pid: int) -> None:
        self._ended = [pid]
        assert [self.waitpid(), self.waitpid()] == [(pid, 9), (None, None)]


def test_the_first_poll_and_the_one_after_a_child_was_collected_do_not_wait() -> None:
    supervisord = Supervisord()
    assert [supervisord.turn() for _ in range(2)] == [0, 1]
    child = supervisord.fork()
    assert supervisord.turn() == 1
    supervisord.collect(child)
    assert [supervisord.turn() for _ in range(2)] == [0, 1]


def test_what_ends_at_once_is_started_once_a_second() -> None:
    supervisord = Supervisord()
    began, starts = supervisord.now, 0
    supervisord.turn()
    while supervisord.now < began + 8:
        children = [supervisord.fork() for _ in range(7)]
        starts += 1
        supervisord.signals = [(supervisord.now + 0.05 * number, signal.SIGCHLD) for number in range(1, 8)]
        supervisord.turn()
        for child in children:
            supervisord.collect(child)
        supervisord.turn()
    assert 8 <= starts <= 9


def test_a_signal_that_is_not_of_a_child_ends_the_poll_also_in_that_second() -> None:
    supervisord = Supervisord()
    supervisord.turn()
    supervisord.collect(supervisord.fork())
    supervisord.signals = [(supervisord.now + 0.2, signal.SIGCHLD), (supervisord.now + 0.3, signal.SIGTERM)]
    assert supervisord.turn() == 0.3


def test_when_everything_is_to_end_there_is_no_pause() -> None:
    assert SupervisorStates.SHUTDOWN < SupervisorStates.RESTARTING < RUNNING == SupervisorStates.RUNNING
    supervisord = Supervisord()
    supervisord.turn()
    supervisord.collect(supervisord.fork())
    supervisord.mood = SupervisorStates.SHUTDOWN
    supervisord.signals = [(supervisord.now + 0.2, signal.SIGCHLD)]
    assert supervisord.turn() == 0.2


class Options:
    """supervisord's, with a real poller."""

    mood = SupervisorStates.RUNNING

    def __init__(self) -> None:
        self.poller = PollPoller(self)

    def fork(self) -> int:
        return 7

    def waitpid(self) -> tuple[int, int]:
        return 7, 0

    def cleanup(self) -> None:
        self.poller.close()


def test_a_signal_ends_the_poll_and_another_one_the_next() -> None:
    options = Options()
    read, write = os.pipe()
    options.poller.register_readable(read)
    restart_promptly(options)
    assert options.poller.poll(60_000) == ([], [])
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        for _ in range(2):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            began = time.monotonic()
            assert options.poller.poll(60_000) == ([], [])
            assert time.monotonic() - began < 30
        os.write(write, b"x")
        assert options.poller.poll(60_000) == ([read], [])
    finally:
        signal.signal(signal.SIGUSR1, before)
        os.close(read)
        os.close(write)


def test_the_closed_output_of_what_ended_at_once_does_not_end_its_pause() -> None:
    options = Options()
    restart_promptly(options)
    options.poller.poll(1)
    read, write = os.pipe()
    os.close(write)
    options.poller.register_readable(read)
    try:
        assert (options.fork(), options.waitpid()) == (7, (7, 0))
        began = time.monotonic()
        assert options.poller.poll(0.3) == ([], [])
        assert time.monotonic() - began >= 0.3
        options.poller.register_readable(read)
        options.mood = SupervisorStates.SHUTDOWN
        assert options.poller.poll(60_000) == ([read], [])
    finally:
        os.close(read)


def test_from_the_cleanup_before_a_reload_on_no_signal_is_written_into_what_has_the_number_of_the_pipe(
    pipes: list[tuple[int, int]],
) -> None:
    first = Options()
    restart_promptly(first)
    first.cleanup()
    read, write = os.pipe()  # as supervisord's log and sockets after it
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        assert {read, write} == set(pipes[0])
        os.set_blocking(read, False)
        os.kill(os.getpid(), signal.SIGUSR1)
        with pytest.raises(BlockingIOError):
            os.read(read, 1)
        second = Options()
        restart_promptly(second)
        second.poller.poll(0)
        os.kill(os.getpid(), signal.SIGUSR1)
        with pytest.raises(BlockingIOError):
            os.read(read, 1)
        assert second.poller.poll(60_000) == ([], [])
    finally:
        signal.signal(signal.SIGUSR1, before)
        os.close(read)
        os.close(write)
