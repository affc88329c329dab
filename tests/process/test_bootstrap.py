"""bootstrap and the frame under a real supervisord: refusals, restarts, orphans."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bus.manifest import read_manifest
from bus.messages.beat import Beat
from tests.process.supervised import CHECKOUT, Agent, alive, eventually
from tests.support.agents.bus_client import next_beat
from tests.support.waits.deadline import WAIT_SECONDS
from tests.support.waits.stopped import wait_stopped


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    agent = Agent(tmp_path_factory.mktemp("b"))
    yield agent
    agent.clean_up()


def console(agent: Agent) -> list[str]:
    return [line for line in (agent.home / "console").read_text().splitlines() if "bulkhead bootstrap" in line]


async def beat_of(agent: Agent, service: str) -> Beat:
    return await next_beat(read_manifest(agent.run_dir), service)


def test_a_bad_first_configuration_is_printed_once_and_ends_supervisord(agent: Agent) -> None:
    agent.configure("prot: 1\nmaxPods: many\n")
    agent.start()
    assert agent.supervisord and agent.supervisord.wait(WAIT_SECONDS) == 0
    [first, second] = console(agent)
    assert first == f'bulkhead bootstrap: {agent.config}:9:1: prot: unknown key, ignored (did you mean "port"?)'
    assert second.startswith(f'bulkhead bootstrap: {agent.config}:10:1: maxPods: is "many", must be')
    assert not (agent.run_dir / "manifest.json").exists()
    assert "maxPods" in (agent.log_dir / "bootstrap.log").read_text()


def test_a_console_that_cannot_be_opened_is_no_obstacle(agent: Agent) -> None:
    ours, theirs = socket.socketpair()  # what a systemd unit has for its standard error
    agent.configure("maxPods: many\n")
    agent.start(stderr=theirs.fileno())
    assert agent.supervisord and agent.supervisord.wait(WAIT_SECONDS) == 0
    assert 'maxPods: is "many"' in (agent.home / "supervisord.log").read_text()
    ours.close()
    theirs.close()


def test_without_supervisord_a_bad_configuration_exits_with_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [CHECKOUT / ".venv/bin/python", "-P", "-m", "services.bootstrap"],
        env={"BULKHEAD_HOME": str(tmp_path), "KUBELET_ARGS": "--prot=1", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "bulkhead bootstrap: unknown flag: --prot (did you mean --port?)\n"


def test_a_taken_port_ends_the_start_with_its_owner(agent: Agent) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        agent.configure(port=taken.getsockname()[1])
        [line] = agent.run_bootstrap().splitlines()
    assert re.search(r"port: 127\.0\.0\.1:\d+ is in use by .* \(process \d+\) \(stop that process", line)


def test_a_run_directory_that_is_too_long_ends_the_start(agent: Agent) -> None:
    agent.environment["BULKHEAD_RUN_DIR"] = str(agent.home / ("d" * 100))
    agent.start()
    assert agent.supervisord and agent.supervisord.wait(WAIT_SECONDS) == 0
    [line] = console(agent)
    assert "too long for sockets" in line


async def test_a_good_start_leaves_private_files(agent: Agent) -> None:
    agent.start()
    agent.logged("status", "dummy runs")
    for path in agent.run_dir.rglob("*"):
        with suppress(FileNotFoundError):  # a temporary file that has been renamed since
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert json.loads((agent.run_dir / "config.json").read_bytes())["config"]["port"] == 32250
    assert agent.stop() == 0
    assert "stopping is True" in agent.logged("status", "dummy was cancelled")


def test_a_service_needs_no_bootstrap_to_restart(agent: Agent) -> None:
    agent.start()
    agent.logged("status", "dummy runs")
    agent.rpc("stopProcess", "bootstrap")
    before = agent.pid("status")
    os.kill(before, signal.SIGKILL)
    after = agent.holder("status", besides=before)
    eventually(lambda: agent.logged("status", "").count("dummy runs") == 2, "the dummy runs again")
    assert after == agent.pid("status")


@pytest.mark.parametrize("name", ["config.json", "manifest.json"])
def test_removed_or_damaged_files_are_written_again(agent: Agent, name: str) -> None:
    agent.start()
    agent.logged("status", "dummy runs")
    file = agent.run_dir / name
    good = file.read_bytes()
    file.unlink()
    eventually(lambda: file.exists() and file.read_bytes() == good, f"{name} is back")
    file.write_text("{}")
    eventually(lambda: file.read_bytes() == good, f"{name} is complete again")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.unlink()
    before = agent.holder("status")
    os.kill(before, signal.SIGKILL)
    agent.holder("status", besides=before)
    eventually(lambda: agent.logged("status", "").count("dummy runs") == 2, "a restarted service works")


def test_an_edit_counts_for_all_services_at_a_reload_and_for_none_before(agent: Agent) -> None:
    agent.start()
    agent.logged("bootstrap", "bootstrap started")
    agent.logged("status", "dummy runs")
    good = (agent.run_dir / "config.json").read_bytes()
    agent.configure("maxPods: many\n")
    agent.logged("bootstrap", "the last good one stays in force")
    agent.configure("maxPods: 7\n")
    line = "the change counts when the agent is restarted or reloaded (SIGHUP)"
    agent.logged("bootstrap", line)
    for times, kill in ((2, True), (3, False)):
        before = agent.holder("bootstrap")
        if kill:
            os.kill(before, signal.SIGKILL)
        else:
            agent.rpc("stopProcess", "bootstrap")
            agent.rpc("startProcess", "bootstrap")
        eventually(lambda: agent.logged("bootstrap", "").count(line) == times, "the restarted one reports it")  # noqa: B023
        assert (agent.run_dir / "config.json").read_bytes() == good
    _reload(agent, runs=2)
    assert b'"max_pods": 7' in (agent.run_dir / "config.json").read_bytes()


def test_a_reload_with_a_bad_configuration_restarts_all_services_with_the_last_good_one(agent: Agent) -> None:
    agent.start()
    agent.logged("status", "dummy runs")
    good = json.loads((agent.run_dir / "config.json").read_bytes())
    agent.configure("maxPods: many\n")
    _reload(agent, runs=2)
    assert "the last good one stays in force" in agent.logged("bootstrap", "maxPods")
    found = json.loads((agent.run_dir / "config.json").read_bytes())
    assert found["config"] == good["config"]
    assert found["generation"] != good["generation"]


@pytest.mark.parametrize("edit", ["maxPods: 7\n", "maxPods: many\n"])
def test_without_its_file_bootstrap_takes_up_an_edit_for_all_services_or_for_none(agent: Agent, edit: str) -> None:
    agent.start()
    agent.logged("status", "dummy runs")
    bootstrap, status = agent.holder("bootstrap"), agent.holder("status")
    os.kill(bootstrap, signal.SIGSTOP)
    wait_stopped(bootstrap)
    agent.configure(edit)
    (agent.run_dir / "config.json").unlink()
    os.kill(bootstrap, signal.SIGKILL)
    if "many" in edit:
        agent.logged("bootstrap", "maxPods: is")
        assert agent.holder("status") == status, "it goes on"
        agent.configure("maxPods: 7\n")
    agent.holder("status", besides=status)
    in_force = agent.run_dir / "config.json"
    # A service may restart for the changed configuration before supervisord restarts all of them.
    eventually(lambda: json.loads(in_force.read_bytes())["generation"].endswith("/2"), "supervisord is restarted")
    assert json.loads(in_force.read_bytes())["config"]["max_pods"] == 7


def test_after_each_of_five_reloads_supervisord_answers_and_the_services_run(agent: Agent) -> None:
    agent.start()
    agent.logged("status", "dummy runs")
    for reloads in range(1, 6):
        if reloads % 2:
            _reload(agent, runs=reloads + 1)
        else:
            agent.rpc("restart")
            eventually(lambda: agent.logged("status", "").count("dummy runs") == reloads + 1, "restarted")  # noqa: B023
        for _ in range(20):  # each on a connection of its own
            states = {program["name"]: program["statename"] for program in agent.rpc("getAllProcessInfo")}
            assert states == {"bootstrap": "RUNNING", "status": "RUNNING"}


def _reload(agent: Agent, runs: int) -> None:
    assert agent.supervisord
    agent.supervisord.send_signal(signal.SIGHUP)
    eventually(lambda: agent.logged("status", "").count("dummy runs") == runs, "the services are restarted")


async def test_bootstrap_restarted_alone_keeps_the_last_good_configuration(agent: Agent) -> None:
    agent.start()
    agent.logged("status", "dummy runs")
    good = json.loads((agent.run_dir / "config.json").read_bytes())
    agent.rpc("stopProcess", "bootstrap")
    agent.configure("maxPods: many\n")
    agent.rpc("startProcess", "bootstrap")
    agent.logged("bootstrap", "the last good one stays in force")
    beat = await beat_of(agent, "bootstrap")
    assert any("maxPods" in trouble for trouble in beat.troubles)
    assert json.loads((agent.run_dir / "config.json").read_bytes()) == good


def test_a_configuration_left_by_an_earlier_run_does_not_hide_that_it_is_bad_now(agent: Agent) -> None:
    agent.start()
    agent.logged("status", "dummy runs")
    agent.stop()
    agent.configure("maxPods: many\n")
    agent.start()
    assert agent.supervisord and agent.supervisord.wait(WAIT_SECONDS) == 0
    assert len(console(agent)) == 1
    assert agent.logged("status", "").count("dummy runs") == 1


def test_orphans_work_on_until_the_services_of_the_next_supervisord_replace_them(agent: Agent) -> None:
    agent.start()
    agent.logged("status", "dummy runs")
    orphans = {service: agent.holder(service) for service in ("bootstrap", "status")}
    agent.kill_supervisord()
    os.kill(orphans["bootstrap"], signal.SIGTERM)
    eventually(lambda: not alive(orphans["bootstrap"]), "it ends on the signal")
    assert alive(orphans["status"])
    agent.configure("maxPods: 7\n")
    agent.start()
    for service, orphan in orphans.items():
        assert agent.holder(service, besides=orphan) == agent.pid(service)
        eventually(lambda: not alive(orphan), "the orphan ends")  # noqa: B023  its lock is free before
    eventually(lambda: agent.logged("status", "").count("dummy runs") == 2, "the new one runs")
    assert b'"max_pods": 7' in (agent.run_dir / "config.json").read_bytes()
    assert agent.stop() == 0


@pytest.mark.parametrize("hung", [signal.SIGSTOP, 0])
def test_an_orphan_that_does_not_end_is_killed_and_replaced(agent: Agent, hung: int) -> None:
    (agent.home / "dummy").write_text("" if hung else "stay")
    agent.start()
    agent.logged("status", "dummy runs")
    orphan = agent.holder("status")
    agent.kill_supervisord()
    os.kill(orphan, hung)  # only now: a stopped process group that becomes an orphan is continued by the kernel
    (agent.home / "dummy").write_text("")
    agent.start()
    agent.logged("status", f"status: process {orphan} is an orphan: SIGKILL")
    assert agent.holder("status", besides=orphan) == agent.pid("status")
    eventually(lambda: agent.logged("status", "").count("dummy runs") == 2, "the new one runs")


def test_with_a_bad_configuration_the_next_supervisord_goes_on_with_that_of_the_orphans(agent: Agent) -> None:
    agent.start()
    agent.logged("status", "dummy runs")
    good = json.loads((agent.run_dir / "config.json").read_bytes())
    orphan = agent.holder("status")
    agent.kill_supervisord()
    agent.configure("maxPods: many\n")
    agent.start()
    agent.logged("bootstrap", "the last good one stays in force")
    assert agent.holder("status", besides=orphan) == agent.pid("status")
    assert json.loads((agent.run_dir / "config.json").read_bytes())["config"] == good["config"]


def test_a_second_agent_with_the_same_run_directory_is_refused_in_one_line(agent: Agent) -> None:
    agent.start()
    agent.logged("status", "dummy runs")
    holders = {service: agent.holder(service) for service in ("bootstrap", "status")}
    first = agent.supervisord
    conf = agent.home / "second.conf"
    conf.write_text(agent.conf.read_text().replace(f"{agent.home}/s.sock", f"{agent.home}/t.sock"))
    agent.start(conf=conf)
    second, agent.supervisord = agent.supervisord, first
    assert second is not None and second.wait(WAIT_SECONDS) == 0
    [line] = console(agent)
    lock, pid = agent.run_dir / "locks/bootstrap.lock", holders["bootstrap"]
    assert line == (
        f"bulkhead bootstrap: {lock}: bootstrap is running already, as process {pid} of another agent"
        " (stop that agent, or give this one another run directory)"
    )
    assert {service: agent.holder(service) for service in holders} == holders


@pytest.mark.parametrize(
    ("order", "line"),
    [
        ("fail", "ValueError: as ordered"),
        ("cling", "its bus did not end within 3 s"),
        ("refuse", "the moon: is not to be had (look up)"),
        ("hang", "the event loop did not turn for too long"),
    ],
)
def test_a_service_that_fails_logs_the_reason_and_restarts(agent: Agent, order: str, line: str) -> None:
    (agent.home / "dummy").write_text(order)
    agent.start()
    agent.logged("status", line)
    (agent.home / "dummy").write_text("")
    text = agent.logged("status", "dummy runs:  on")
    assert ("Traceback" in text) is (order in ("fail", "cling"))
    assert ("dummy.py" in text.partition("did not turn for")[2].partition("status started")[0]) is (order == "hang")


@pytest.mark.parametrize(
    ("order", "line", "stack"),
    [
        ("stick", "the work that was ordered has made no progress for 0 s; it ends, and its stacks follow", "in run"),
        ("spin", "(most recent call first)", "dummy.py"),
    ],
)
def test_a_hung_service_leaves_its_stacks_in_its_log_and_is_started_again(
    agent: Agent, order: str, line: str, stack: str
) -> None:
    (agent.home / "dummy").write_text(order)
    agent.start()
    agent.logged("status", line)
    (agent.home / "dummy").write_text("")
    text = agent.logged("status", "dummy runs:  on")
    before = text.partition("dummy runs:  on")[0]
    assert line in before and stack in before
    assert "dummy.py" in before and "watchdog.py" in before


def test_a_second_signal_ends_a_service_that_does_not(agent: Agent) -> None:
    (agent.home / "dummy").write_text("stay")
    agent.start()
    agent.logged("status", "dummy runs")
    pid = agent.pid("status")
    os.kill(pid, signal.SIGTERM)
    agent.logged("status", "dummy was cancelled")
    (agent.home / "dummy").write_text("")
    os.kill(pid, signal.SIGTERM)
    agent.logged("status", "a second signal to end: ending at once")
    eventually(lambda: not alive(pid), "it ends at once")
    agent.logged("status", "dummy runs:  on")


async def test_a_stopped_supervisord_does_not_freeze_a_chattering_service(agent: Agent) -> None:
    (agent.home / "dummy").write_text("chatter")
    agent.start()
    agent.logged("status", "dummy runs")
    assert agent.supervisord
    agent.supervisord.send_signal(signal.SIGSTOP)
    path = agent.log_dir / "status.log"
    size = path.stat().st_size
    eventually(lambda: path.stat().st_size > size + 500_000, "half a megabyte more")  # a pipe holds 64 KiB
    assert (await beat_of(agent, "status")).pid == agent.holder("status")
    agent.supervisord.send_signal(signal.SIGCONT)


def test_a_service_stopped_for_longer_than_the_watchdog_waits_goes_on(agent: Agent) -> None:
    (agent.home / "dummy").write_text("idle")
    agent.start()
    agent.logged("status", "dummy runs")
    pid = agent.pid("status")
    os.kill(pid, signal.SIGSTOP)
    subprocess.run(["sleep", "1.2"], check=True)  # twice the dummy's limit; the absence of ticks is the point
    os.kill(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGTERM)
    assert "did not turn for" not in agent.logged("status", "dummy was cancelled")
    eventually(lambda: agent.logged("status", "").count("dummy runs") == 2, "it is started again")
