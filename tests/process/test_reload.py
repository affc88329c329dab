"""A reload under a real supervisord: it restarts the services that read what has changed, and no other one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.manifest import read_manifest
from shared.config.loader import load_effective
from tests.process.supervised import Agent, eventually
from tests.support.agents.bus_client import next_beat


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    agent = Agent(tmp_path_factory.mktemp("b"), dummies=("sources", "podsync"))
    yield agent
    agent.clean_up()


def begin(agent: Agent) -> dict[str, int]:
    """Start the agent; return the process of each service once all run."""
    agent.start()
    agent.logged("bootstrap", "bootstrap started")
    for service in ("sources", "podsync"):
        agent.logged(service, "dummy runs")
    return processes(agent)


def processes(agent: Agent) -> dict[str, int]:
    return {service: agent.holder(service) for service in ("bootstrap", "sources", "podsync")}


def hang_up(agent: Agent) -> None:
    agent.rpc("signalProcess", "bootstrap", "HUP")


def times(agent: Agent, service: str, text: str, count: int) -> None:
    """Wait until the log of the service has the text so often."""
    eventually(lambda: agent.logged(service, "").count(text) >= count, f"{count} times {text!r} in {service}.log")


def test_a_hangup_restarts_the_services_that_read_what_has_changed(agent: Agent) -> None:
    before = begin(agent)
    agent.configure("podPidsLimit: 100\n")
    agent.logged("bootstrap", "the change counts when the agent is restarted or reloaded (SIGHUP)")
    assert processes(agent) == before, "an edit alone changes nothing"
    hang_up(agent)
    agent.logged("bootstrap", "reload: podPidsLimit has changed: podsync restarts")
    agent.logged("podsync", "podsync restarts for the changed configuration: podPidsLimit")
    times(agent, "podsync", "dummy runs", 2)
    after = processes(agent)
    assert {service for service in after if after[service] != before[service]} == {"podsync"}
    agent.configure("podPidsLimit: 100\nsyncFrequency: 50s\n")
    hang_up(agent)
    for service in ("sources", "podsync"):
        agent.logged(service, f"{service} restarts for the changed configuration: syncFrequency")
        agent.holder(service, besides=after[service])
    agent.holder("bootstrap", besides=after["bootstrap"])
    assert load_effective(str(agent.run_dir)).sync_frequency == 50.0


def test_what_no_service_reads_at_its_start_restarts_none(agent: Agent) -> None:
    before = begin(agent)
    agent.configure("logging: {verbosity: 4}\nenableContentionProfiling: true\n")
    hang_up(agent)
    agent.logged("bootstrap", "reload: no service restarts")
    eventually(lambda: load_effective(str(agent.run_dir)).verbosity == 4, "it is in force")
    assert processes(agent) == before


async def test_a_refused_configuration_restarts_none_and_is_reported(agent: Agent) -> None:
    before = begin(agent)
    good = load_effective(str(agent.run_dir))
    agent.configure("podPidsLimit: many\n")
    hang_up(agent)
    agent.logged("bootstrap", "the last good one stays in force")
    eventually(lambda: load_effective(str(agent.run_dir)) == good, "the last good one is in force")
    beat = await next_beat(read_manifest(agent.run_dir), "bootstrap")
    assert any("podPidsLimit" in trouble for trouble in beat.troubles)
    assert processes(agent) == before
    agent.configure("podPidsLimit: 100\n")
    hang_up(agent)
    agent.holder("podsync", besides=before["podsync"])


def test_with_the_flag_an_edit_is_applied_without_a_signal(agent: Agent) -> None:
    agent.args.append("--reload-config")
    before = begin(agent)
    agent.configure("podPidsLimit: 100\n")
    agent.holder("podsync", besides=before["podsync"])
    eventually(lambda: load_effective(str(agent.run_dir)).pod_pids_limit == 100, "it is applied")
    assert agent.holder("sources") == before["sources"]


@pytest.mark.parametrize(("point", "applied"), [("checked", False), ("written", True)])
def test_a_bootstrap_that_is_killed_applies_a_reload_to_all_services_or_to_none(
    agent: Agent, tmp_path: Path, point: str, applied: bool
) -> None:
    crash = tmp_path / "crash"
    agent.environment["CRASH_AT"] = f"@{crash}"
    before = begin(agent)
    agent.configure("syncFrequency: 50s\n")
    crash.write_text(f"bootstrap.reload.{point}")
    hang_up(agent)
    bootstrap = agent.holder("bootstrap", besides=before["bootstrap"])
    if not applied:
        agent.logged("bootstrap", "the change counts when the agent is restarted or reloaded (SIGHUP)")
        assert agent.holder("podsync") == before["podsync"]
        hang_up(agent)
        agent.holder("bootstrap", besides=bootstrap)
    for service in ("sources", "podsync"):
        agent.holder(service, besides=before[service])
    assert load_effective(str(agent.run_dir)).sync_frequency == 50.0


def test_after_twenty_reloads_in_a_row_all_services_have_the_last_configuration(agent: Agent) -> None:
    before = begin(agent)
    for limit in range(100, 120):
        agent.configure(f"podPidsLimit: {limit}\n")
        hang_up(agent)
    eventually(lambda: load_effective(str(agent.run_dir)).pod_pids_limit == 119, "the last one is in force")
    agent.holder("podsync", besides=before["podsync"])
    assert (agent.holder("sources"), agent.holder("bootstrap")) == (before["sources"], before["bootstrap"])
    assert "started too often" not in agent.logged("podsync", "dummy runs")
