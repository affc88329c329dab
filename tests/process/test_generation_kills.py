"""supervisord killed at bad moments: what the next one starts works, and no process is left behind."""

import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.process.supervised import Agent, alive, eventually
from tests.support.waits.deadline import WAIT_SECONDS

SERVICES = ("bootstrap", "status")
TRIES = 5


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    agent = Agent(tmp_path_factory.mktemp("g"))
    yield agent
    agent.clean_up()


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


def test_a_process_whose_supervisord_was_killed_before_it_began_replaces_nothing(agent: Agent) -> None:
    agent.start()
    agent.logged("status", "dummy runs")
    for _ in range(TRIES):
        before = holders(agent)
        forked = stop_the_next_services_at_once(agent)
        agent.kill_supervisord()
        for pid in forked:
            os.kill(pid, signal.SIGCONT)
        eventually(lambda: not any(alive(pid) and pid not in holders(agent) for pid in forked), "they end")  # noqa: B023
        if holders(agent) == before:
            break
        # The stop came too late, as this process did not run: they have begun to replace.
    assert holders(agent) == before
    agent.start()
    after = [agent.holder(service, besides=pid) for service, pid in zip(SERVICES, before, strict=True)]
    assert after == [agent.pid(service) for service in SERVICES]


def holders(agent: Agent) -> list[int]:
    """The processes that hold the locks of the services."""
    return [agent.holder(service) for service in SERVICES]


def stop_the_next_services_at_once(agent: Agent) -> list[int]:
    """Kill supervisord, start the next one and send SIGSTOP to each service as it is forked; return their ids."""
    agent.kill_supervisord()
    agent.start()
    process = agent.supervisord.pid if agent.supervisord else 0
    pidfile = agent.home / "supervisord.pid"
    eventually(lambda: pidfile.read_text().strip() == str(process), "what it forks from now on are programs")
    forked: list[int] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(forked) < len(SERVICES) and time.monotonic() < deadline:  # without a pause: they begin after 20 ms
        for pid in set(children(agent)) - set(forked):
            os.kill(pid, signal.SIGSTOP)
            forked.append(pid)
    assert len(forked) == len(SERVICES)
    return forked


def test_a_service_that_waits_for_its_configuration_ends_with_its_supervisord(agent: Agent) -> None:
    agent.start()
    agent.logged("status", "dummy runs")
    agent.kill_supervisord()
    status = agent.holder("status")
    certificate = agent.home / "kubelet/pki/kubelet.crt"
    certificate.rename(certificate.with_suffix(".real"))
    os.mkfifo(certificate)  # bootstrap blocks here, and writes no configuration
    agent.start()
    agent.logged("bootstrap", "is an orphan")
    waiting = agent.pid("status")
    agent.kill_supervisord()
    eventually(lambda: not alive(waiting), "it ends")
    assert alive(status), "what works goes on"
    with suppress(OSError):  # no reader: the process that read the certificate has ended already
        os.close(os.open(certificate, os.O_WRONLY | os.O_NONBLOCK))
    certificate.with_suffix(".real").rename(certificate)


def children(agent: Agent) -> list[int]:
    """Of the present supervisord."""
    assert agent.supervisord
    pid = agent.supervisord.pid
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
