"""The embedded containerd: started by bootstrap, kept by its wrapper, never two of them, never an orphan for good."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.containerd import network_of_our_own
from tests.process.supervised import Agent, alive, eventually
from tools.containerd import answers

pytestmark = pytest.mark.root


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    agent = Agent(tmp_path_factory.mktemp("c"), dummies=(), programs=("bootstrap", "containerd"))
    bridge, subnet = network_of_our_own()
    agent.configure(
        "---\napiVersion: bulkhead/v1alpha1\nkind: BulkheadConfiguration\n"
        f"embeddedContainerd: {{enabled: true, bridge: {bridge}, podCIDR: {subnet}}}\n"
    )
    yield agent
    agent.clean_up()


def child(agent: Agent, besides: int = 0) -> int:
    """The containerd below the wrapper that holds the lock, once it answers."""

    def look() -> int:
        keeper = agent.holder("containerd")
        try:
            children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
        except OSError:
            return 0
        found = int(children[0]) if children else 0
        return found if found != besides and answers(f"{agent.run_dir}/containerd/containerd.sock") else 0

    return eventually(look, "containerd answers")


def opened(process: int) -> set[str]:
    """The names of the files it has open; one that it closes meanwhile may be missing."""
    names = set()
    for fd in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):
            names.add(fd.readlink().name)
    return names


def test_bootstrap_has_it_started_with_a_configuration_that_it_takes(agent: Agent) -> None:
    agent.start()
    containerd = child(agent)
    assert "containerd.lock" not in opened(containerd)  # a shim would inherit it and hold it for ever
    assert agent.stop() == 0
    assert not alive(containerd)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("victim", ["wrapper", "containerd"])
def test_ended_by_anybody_it_comes_back_as_one(agent: Agent, victim: str, number: signal.Signals) -> None:
    agent.start()
    before = child(agent)
    os.kill(agent.holder("containerd") if victim == "wrapper" else before, number)
    after = child(agent, besides=before)
    assert not alive(before)
    assert alive(after)


def test_a_new_supervisord_stands_by_and_stops_the_orphan(agent: Agent) -> None:
    agent.start()
    containerd, keeper = child(agent), agent.holder("containerd")
    agent.kill_supervisord()
    agent.start()
    agent.logged("containerd", "standing by to take over")
    assert agent.pid("containerd") != keeper
    assert child(agent) == containerd
    assert agent.stop() == 0
    assert not alive(keeper)
    assert not alive(containerd)


def test_a_hangup_makes_it_read_its_configuration_again(agent: Agent) -> None:
    agent.start()
    before = child(agent)
    os.kill(agent.holder("containerd"), signal.SIGHUP)
    assert child(agent, besides=before)


def test_what_is_not_installed_is_named_with_the_remedy(agent: Agent) -> None:
    agent.configure(
        "---\napiVersion: bulkhead/v1alpha1\nkind: BulkheadConfiguration\n"
        "embeddedContainerd: {enabled: true, path: /nowhere/containerd, cniBinDir: /nowhere}\n"
    )
    agent.start()
    assert agent.supervisord and agent.supervisord.wait(30) == 0
    lines = (agent.home / "console").read_text()
    assert "/nowhere/containerd is not an executable (apt-get install containerd" in lines
    assert "/nowhere/bridge does not exist (apt-get install" in lines
