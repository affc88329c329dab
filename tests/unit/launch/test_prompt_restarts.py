"""supervisord's poll ends with a signal, and does not wait in the turn after the one that collected a child."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from supervisor.poller import PollPoller

from services import prompt_restarts
from services.prompt_restarts import restart_promptly


@pytest.fixture(autouse=True)
def _no_wakeup_remains() -> Iterator[None]:
    yield
    signal.set_wakeup_fd(-1)
    prompt_restarts._wakeup.cache_clear()


def test_the_poll_after_a_child_was_collected_does_not_wait() -> None:
    ended, waited = [(7, 9), (None, None)], list[float]()

    def poll(timeout: float) -> tuple[list[int], list[int]]:
        waited.append(timeout)
        return [], []

    poller = SimpleNamespace(poll=poll, register_readable=lambda _: None)
    options = SimpleNamespace(waitpid=lambda: ended.pop(0) if ended else (0, 0), poller=poller)
    restart_promptly(options)
    options.poller.poll(1)
    assert [options.waitpid(), options.waitpid()] == [(7, 9), (None, None)]
    options.poller.poll(1)
    assert options.waitpid() == (0, 0)
    assert options.poller.poll(1) == ([], [])
    assert waited == [1, 0, 1]


def test_a_signal_ends_the_poll_and_another_one_the_next() -> None:
    poller = PollPoller(SimpleNamespace())
    read, write = os.pipe()
    poller.register_readable(read)
    restart_promptly(SimpleNamespace(waitpid=lambda: (0, 0), poller=poller))
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        for _ in range(2):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            began = time.monotonic()
            assert poller.poll(60_000) == ([], [])
            assert time.monotonic() - began < 30
        os.write(write, b"x")
        assert poller.poll(60_000) == ([read], [])
    finally:
        signal.signal(signal.SIGUSR1, before)
        os.close(read)
        os.close(write)
