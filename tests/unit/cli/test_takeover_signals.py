"""What ends a takeover: Ctrl-C, SIGTERM and a closed terminal, once; a signal that is ignored does not."""

import os
import signal
from collections.abc import Iterator

import pytest

from services.cli.takeover.exchange import _end_with_ctrl_c

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_DFL) for number in NUMBERS}  # a shell's job may ignore some
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", NUMBERS)
def test_the_first_signal_interrupts_and_the_next_ones_do_not(first: signal.Signals) -> None:
    _end_with_ctrl_c()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), first)
    for number in NUMBERS:
        os.kill(os.getpid(), number)


def test_what_nohup_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _end_with_ctrl_c()
    os.kill(os.getpid(), signal.SIGHUP)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
