"""What systemd receives: READY once, pings while ended services are restarted, and none when they are not."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.process.kubelet_process import Kubelet, ServiceManager
from tests.process.supervised import CHECKOUT, eventually
from tests.support.agents.agent import BIN

WATCHDOG_SECONDS = 6.0  # WatchdogSec= of the unit played here; pings come twice as often
TRIES = 3


@pytest.fixture
def manager(kubelet: Kubelet) -> Iterator[ServiceManager]:
    manager = ServiceManager(kubelet.home)
    kubelet.environment = {
        "NOTIFY_SOCKET": manager.address,
        "WATCHDOG_USEC": str(int(WATCHDOG_SECONDS * 1e6)),
        "WATCHDOG_PID": "",
    }
    yield manager
    manager.close()


def longest_silence(manager: ServiceManager, seconds: float) -> float:
    """The longest time without a ping within so many seconds."""
    began = time.monotonic()
    manager.listen(seconds)
    pings = [at for at, text in manager.messages if text == "WATCHDOG=1" and at >= began]
    return max(after - before for before, after in zip([began, *pings], [*pings, time.monotonic()], strict=True))


def is_replaced(kubelet: Kubelet, service: str, before: int) -> bool:
    """Whether the service runs as another process."""
    return kubelet.holders().get(service, 0) not in (0, before)


def test_ready_comes_once_and_pings_as_long_as_supervisord_works(kubelet: Kubelet, manager: ServiceManager) -> None:
    kubelet.start()
    manager.wait("READY=1")
    manager.wait("WATCHDOG=1")

    for name in ("bootstrap", "status"):
        silences: list[float] = []
        while not silences or silences[-1] >= WATCHDOG_SECONDS:  # again where the machine did something else meanwhile
            assert len(silences) < TRIES, (name, silences)
            before = kubelet.wait_all()[name]
            os.kill(before, signal.SIGKILL)
            silences.append(longest_silence(manager, 2 * WATCHDOG_SECONDS))
            eventually(partial(is_replaced, kubelet, name, before), f"{name} is back")
    assert [text for _, text in manager.messages].count("READY=1") == 1

    kubelet.process.send_signal(signal.SIGSTOP)
    manager.listen(WATCHDOG_SECONDS)
    assert manager.listen(1.5 * WATCHDOG_SECONDS) == [], "ended services are not restarted: no ping may come"
    kubelet.process.send_signal(signal.SIGCONT)
    manager.wait("WATCHDOG=1")

    assert kubelet.end() == 0
    assert {text for _, text in manager.messages} == {"READY=1", "WATCHDOG=1"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR1])
def test_the_next_one_is_ready_with_the_services_of_a_killed_one(
    kubelet: Kubelet, manager: ServiceManager, number: signal.Signals
) -> None:
    kubelet.start()
    manager.wait("READY=1")
    holders = kubelet.wait_all()
    assert kubelet.end(number) == -number
    assert kubelet.holders() == holders
    manager.listen(WATCHDOG_SECONDS)
    assert manager.listen(WATCHDOG_SECONDS) == []
    kubelet.start()
    manager.wait("READY=1")
    manager.wait("WATCHDOG=1")
    for name, pid in holders.items():
        kubelet.wait_stderr(f"{name}: process {pid} is an orphan")
    assert kubelet.end() == 0


def test_a_watchdog_of_another_process_gets_no_pings(kubelet: Kubelet, manager: ServiceManager) -> None:
    kubelet.environment["WATCHDOG_PID"] = "1"
    kubelet.start()
    manager.wait("READY=1")
    assert manager.listen(WATCHDOG_SECONDS) == []
    assert kubelet.end() == 0


def test_the_unit_file_is_one_that_systemd_takes_and_means_the_executable(tmp_path: Path) -> None:
    text = (CHECKOUT / "systemd/bulkhead.service").read_text().replace("/opt/bulkhead/.venv/bin", str(BIN))
    assert f"ExecStart={BIN}/kubelet" in text
    assert {"Type=notify", "NotifyAccess=all"} <= set(text.splitlines())
    unit = tmp_path / "bulkhead.service"
    unit.write_text(text.replace("/opt/bulkhead", str(CHECKOUT)))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "bulkhead" in line]) == (0, [])
