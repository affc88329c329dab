"""supervisord killed at bad moments: what the next one starts and restarts works, and nobody is left behind."""

import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.generation import generation_of
from tests.process.supervised import Agent, alive, eventually


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    agent = Agent(tmp_path_factory.mktemp("g"))
    yield agent
    agent.clean_up()


class HeldUp:
    """While it is open, a bootstrap that comes to look at its serving certificate stands there and waits."""

    def __init__(self, certificate: Path) -> None:
        self._certificate, self._real = certificate, certificate.with_suffix(".real")
        certificate.rename(self._real)
        os.mkfifo(certificate)
        self._fd = -1

    def reached(self) -> bool:
        """Whether somebody waits for the certificate by now."""
        try:
            self._fd = os.open(self._certificate, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # no reader yet
            return False
        return True

    def release(self) -> None:
        self._real.rename(self._certificate)
        os.write(self._fd, self._certificate.read_bytes())
        os.close(self._fd)


def test_what_is_restarted_works_when_an_orphaned_bootstrap_wrote_the_configuration_last(agent: Agent) -> None:
    agent.start()
    agent.logged("status", "dummy runs")
    agent.rpc("stopProcess", "bootstrap")
    held_up = HeldUp(agent.home / "kubelet/pki/kubelet.crt")
    agent.rpc("startProcess", "bootstrap")
    eventually(held_up.reached, "bootstrap is in the middle of its configuration")
    orphan, status = agent.holder("bootstrap"), agent.holder("status")
    agent.kill_supervisord()
    agent.start()
    agent.logged("bootstrap", "standing by to take over")
    agent.logged("status", "standing by to take over")
    file = agent.run_dir / "config.json"
    confirmed = eventually(lambda: file.read_bytes() if generation(agent) in file.read_bytes() else b"", "confirmed")

    held_up.release()
    agent.logged("bootstrap", "the next supervisord's bootstrap confirmed config.json")
    assert agent.holder("bootstrap") == orphan
    eventually(lambda: file.read_bytes() == confirmed, "it is confirmed again")
    for runs in (2, 3):  # a standby, which was there before; then one that finds what it finds
        os.kill(status, signal.SIGKILL)
        status = agent.holder("status", besides=status)
        _runs(agent, runs)


def test_a_service_comes_back_after_a_time_when_nothing_could_be_started(agent: Agent) -> None:
    """Also after more tries than supervisord makes by itself."""
    agent.start()
    agent.logged("status", "dummy runs")
    before = agent.pid("status")
    assert agent.supervisord
    process = agent.supervisord.pid
    full = len(list(Path(f"/proc/{process}/fd").iterdir())) + 1
    soft, hard = resource.prlimit(process, resource.RLIMIT_NOFILE)
    resource.prlimit(process, resource.RLIMIT_NOFILE, (full, hard))
    os.kill(before, signal.SIGKILL)
    log = agent.home / "supervisord.log"
    eventually(lambda: log.read_text().count("too many open files to spawn") >= 5, "five tries that fail")
    resource.prlimit(process, resource.RLIMIT_NOFILE, (soft, hard))
    after = agent.holder("status", besides=before)
    assert alive(after)


def test_a_standby_whose_supervisord_was_killed_before_it_could_ask_for_its_parent_is_not_left_behind(
    agent: Agent,
) -> None:
    agent.start()
    agent.logged("status", "dummy runs")
    holders = [agent.holder(service) for service in ("bootstrap", "status")]
    agent.kill_supervisord()
    agent.start()
    process = agent.supervisord.pid if agent.supervisord else 0
    pidfile = agent.home / "supervisord.pid"
    eventually(lambda: pidfile.read_text().strip() == str(process), "what it forks from now on are programs")
    forked: list[int] = []
    deadline = time.monotonic() + 30
    while len(forked) < len(holders) and time.monotonic() < deadline:  # as often as can be: they have work of 20 ms
        for pid in set(children(agent)) - set(forked):
            os.kill(pid, signal.SIGSTOP)
            forked.append(pid)
    assert len(forked) == len(holders)
    agent.kill_supervisord()
    for pid in forked:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: not any(alive(pid) for pid in forked), "those who stand by for nobody end")
    assert [agent.holder(service) for service in ("bootstrap", "status")] == holders


def _runs(agent: Agent, times: int) -> None:
    eventually(lambda: agent.logged("status", "").count("dummy runs") == times, "the dummy runs again")


def children(agent: Agent) -> list[int]:
    """Of the present supervisord."""
    assert agent.supervisord
    pid = agent.supervisord.pid
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def generation(agent: Agent) -> bytes:
    """The present supervisord, as config.json names it."""
    assert agent.supervisord
    return generation_of(agent.supervisord.pid).encode()
