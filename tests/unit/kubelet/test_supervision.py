"""What supervisord does otherwise inside the executable, piece by piece."""

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from services.kubelet.supervision import Agent, Options, Signals


class Group:
    def __init__(self, priority: int, running: bool) -> None:
        self.config = SimpleNamespace(priority=priority)
        self.running, self.stopped = running, False

    def get_unstopped_processes(self) -> list[Any]:
        return [self] if self.running else []

    def stop_all(self) -> None:
        self.stopped = True


@pytest.mark.parametrize(
    ("running", "stopped"),
    [
        ((10, 20, 30, 35), (30, 35)),
        ((10, 20, 35), (35,)),
        ((10, 20), (20,)),
        ((10,), (10,)),  # a containerd that never ran costs no turn
        ((), ()),
    ],
)
def test_the_services_end_together_and_then_what_they_depend_on(
    running: tuple[int, ...], stopped: tuple[int, ...]
) -> None:
    agent = Agent.__new__(Agent)
    agent.stop_groups = groups = [Group(priority, priority in running) for priority in (10, 20, 30, 35)]
    agent.ordered_stop_groups_phase_1()
    assert tuple(group.config.priority for group in groups if group.stopped) == stopped


def test_a_signal_between_fork_and_exec_ends_the_child() -> None:
    signals = Signals()
    options = Options((), signals, lambda _line: 1)
    before = signal.signal(signal.SIGTERM, signals.receive)
    try:
        child = options.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) == signals.receive
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
    finally:
        signal.signal(signal.SIGTERM, before)
