"""`bulkhead status` and its kin ask running processes, and answer while some of them do not."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.cli.agent.local_agent import TIMEOUT_SECONDS
from services.cli.agent.status import READY
from tests.service.cli.stage import Stage
from tests.support.waits.deadline import WAIT_SECONDS

PODS = 110


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, PODS)
    yield stage
    stage.stop()


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One that all tests share that change nothing."""
    stage = Stage(tmp_path_factory.mktemp("agent"), PODS)
    yield stage
    stage.stop()


def settled(stage: Stage, *ignored: str) -> dict[str, Any]:
    """The report once the node is ready, or has only the problems that begin with one of `ignored`."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found: dict[str, Any] = json.loads(stage.command("status", "-o", "json").stdout)
        if all(line.startswith(ignored) for line in found["problems"] if ignored) and (ignored or found["ready"]):
            return found
        assert time.monotonic() < deadline, found["problems"]


@pytest.mark.long
def test_a_ready_node_is_shown_in_every_form(unchanged: Stage) -> None:
    found = settled(unchanged)
    assert (found["node"], found["standalone"], len(found["pods"])) == ("here", True, PODS)
    assert found["pods_by_state"] == {"ContainerCreating": 1, "ImagePullBackOff": 1, "Running": PODS - 2}
    assert found["runtime"]["name"] == "containerd"
    processes = {row["service"]: row for row in found["processes"]}
    assert processes["podsync"]["pid"] == unchanged.processes["podsync"].pid
    assert all(row["state"] == "running" and row["memory_bytes"] > 0 for row in processes.values())
    assert all(row["beat_age"] < 30 for row in processes.values())
    streams = {row["name"]: row for row in found["streams"]}
    assert streams["pods.desired"]["followers"] == ["podsync", "server"]
    assert streams["pods.desired"]["items"] == PODS

    text = unchanged.command("status")
    assert text.returncode == READY and text.stdout.startswith("node here: ready\n")
    assert "\x1b" not in text.stdout
    assert 'web: ImagePullBackOff (Back-off pulling image "registry.example/web:1"\\x1b[31m)' in text.stdout
    assert "volume data: no such secret" in text.stdout
    assert "web-5 " not in text.stdout
    wide = unchanged.command("status", "-o", "wide")
    assert "web-5 " in wide.stdout and "in step: podsync, server" in wide.stdout
    assert yaml.safe_load(unchanged.command("status", "-o", "yaml").stdout)["node"] == "here"


def test_a_stopped_podsync_is_named_and_pods_are_shown_as_the_runtime_has_them(stage: Stage) -> None:
    settled(stage)
    stage.processes["podsync"].send_signal(signal.SIGSTOP)
    answer = stage.command("status", "-o", "json")
    assert answer.returncode == 3
    found = json.loads(answer.stdout)
    assert any(line.startswith("podsync is stopped by a signal (") for line in found["problems"])
    assert {row["service"]: row["state"] for row in found["processes"]}["podsync"] == "stopped"
    assert found["pods_by_state"] == {"Running": PODS - 2, "Unknown": 2}
    listed, described = stage.command("pods", "web-5"), stage.command("describe", "web-5")
    assert (listed.returncode, described.returncode) == (0, 0)
    for shown in (listed, described):
        assert "podsync does not answer: pods are shown as the runtime has them (" in shown.stderr
    assert "  web: RUNNING\n" in described.stdout and "podsync" in described.stderr.splitlines()[-1]


def test_a_killed_podsync_does_not_run(stage: Stage) -> None:
    settled(stage)
    stage.processes["podsync"].kill()
    stage.processes["podsync"].wait()
    found = json.loads(stage.command("status", "-o", "json").stdout)
    assert "podsync does not run (bulkhead logs --service podsync)" in found["problems"]
    assert stage.command("restart", "podsync").stderr == "podsync does not run (bulkhead logs --service podsync)\n"
    assert stage.command("pods").returncode == 0


@pytest.mark.long
def test_the_age_of_the_last_beat_of_a_stopped_process_is_that_of_its_followers(stage: Stage) -> None:
    settled(stage)
    stage.processes["podsync"].send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        found = json.loads(stage.command("status", "-o", "json").stdout)
        podsync = next(row for row in found["processes"] if row["service"] == "podsync")
        stale = {row["name"]: row["stale_in"] for row in found["streams"] if row["stale_in"]}
        if podsync["beat_age"] > 3 and stale.get("pods.status") == ["server", "status"]:
            return
    pytest.fail(f"{podsync} {stale}")


@pytest.mark.long
def test_a_stopped_process_is_not_waited_for(stage: Stage) -> None:
    settled(stage)
    running = sorted(duration_of_status(stage) for _ in range(8))
    stage.processes["podsync"].send_signal(signal.SIGSTOP)
    stopped = sorted(duration_of_status(stage) for _ in range(8))
    assert stopped[1] < running[1] + 0.5 * TIMEOUT_SECONDS


def duration_of_status(stage: Stage) -> float:
    """Seconds that one call takes."""
    began = time.monotonic()
    stage.command("status")
    return time.monotonic() - began


@pytest.mark.long
def test_wait_ready_returns_once_the_missing_service_runs(stage: Stage) -> None:
    stage.processes["podsync"].kill()
    stage.processes["podsync"].wait()
    assert stage.command("status", "--wait-ready", "0.5").returncode == 3
    waiting: list[subprocess.CompletedProcess[str]] = []
    thread = threading.Thread(
        target=lambda: waiting.append(stage.command("status", "--wait-ready", str(WAIT_SECONDS - 5)))
    )
    thread.start()
    stage.run("podsync")
    thread.join()
    assert (waiting[0].returncode, waiting[0].stdout.splitlines()[0]) == (READY, "node here: ready")


def test_a_command_names_the_stopped_process_that_it_needs_without_waiting_for_it(stage: Stage) -> None:
    settled(stage)
    for stopped, *cases in (
        ("podsync", (("cpus",), "podsync"), (("devices",), "podsync")),
        ("bootstrap", (("top",), "pleg"), (("pods", "delete", "web"), "sources")),  # the process of all the others
    ):
        stage.processes[stopped].send_signal(signal.SIGSTOP)
        for words, service in cases:
            answer = stage.command(*words)
            assert answer.returncode == 1
            assert answer.stderr.startswith(f"{service} is stopped by a signal (kill -CONT "), answer.stderr


@pytest.mark.long
def test_events_are_shown_as_they_are_published_each_once_also_after_a_restart(stage: Stage) -> None:
    settled(stage)
    # What runs in the background of a shell ignores SIGINT, and so would the command that it starts.
    command = ["env", "--default-signal=INT", *stage.line("events", "-w", "-o", "json")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    lines = process.stdout

    def reasons(number: int) -> list[str]:
        return [json.loads(lines.readline())["reason"] for _ in range(number)]

    try:
        assert sorted(reasons(3)) == ["Failed", "Killing", "Pulling"]
        stage.processes["podsync"].send_signal(signal.SIGUSR1)
        assert reasons(1) == ["Added"]
        stage.processes["podsync"].kill()
        stage.processes["podsync"].wait()
        stage.run("podsync").send_signal(signal.SIGUSR1)  # the older three are in its stream again
        assert reasons(1) == ["Added"]
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS) == 130
    finally:
        process.kill()
        process.wait()
        lines.close()


def test_events_are_listed_by_their_age(stage: Stage) -> None:
    settled(stage)
    stage.processes["podsync"].send_signal(signal.SIGUSR1)
    assert "Added" in stage.command("events").stdout
    recent = stage.command("events", "--since", "1h")
    assert "Added" in recent.stdout and "Pulling" not in recent.stdout


@pytest.mark.long
def test_a_pipe_that_closes_and_a_terminal_without_utf8_are_no_tracebacks(unchanged: Stage) -> None:
    command = unchanged.line("status", "-o", "wide")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}  # an interpreter reads it when it starts
    ascii_only = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ascii_only.stderr == "" and "web-5" in ascii_only.stdout
    command = unchanged.line("status", "-w")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline().startswith("node here: ")
        process.stdout.close()
        assert process.wait(WAIT_SECONDS) in (0, 1)
        assert process.stderr.read() == ""


def test_ctrl_c_ends_a_watch_with_130(unchanged: Stage) -> None:
    # A test that runs in the background of a shell ignores SIGINT, and so would its children.
    command = ["env", "--default-signal=INT", *unchanged.line("status", "-w")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline().startswith("node here: ")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, errors) == (130, "")


def test_without_an_agent_it_fails_with_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "services.cli.command", "status", "--run-dir", str(tmp_path / "none")]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith(f"{tmp_path}/none: no agent was started with this run directory (")


def test_pods_describe_and_events_show_one_pod(unchanged: Stage) -> None:
    rows = json.loads(unchanged.command("pods", "-o", "json").stdout)
    assert len(rows) == PODS and rows[0]["name"] == "web-0"
    one = unchanged.command("pods", "web-1", "-n", "shop").stdout.splitlines()
    assert len(one) == 2 and "volume data: no such secret" in one[1]
    assert one[0].split()[:6] == ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert len(unchanged.command("pods", "-A").stdout.splitlines()) == PODS + 1
    wide = unchanged.command("pods", "u5", "-o", "wide").stdout.splitlines()
    assert wide[0].split()[4:] == ["RESTARTS", "AGE", "IP", "SOURCE", "UID", "WAITS", "FOR"]
    assert wide[1].split()[5][-1] == "d" and wide[1].split()[6:] == ["192.0.2.5", "api", "u5"]
    without_events = unchanged.command("describe", "web-5").stdout
    assert "Events: none among the newest 200 of each service (bulkhead explain shop/web-5 " in without_events
    described = unchanged.command("describe", "shop/web-0").stdout
    assert "  State:      ImagePullBackOff\n" in described and "Failed" in described
    assert "\x1b" not in described and "image     registry.example/web:1\\x1b[2J\n" in described
    assert json.loads(unchanged.command("describe", "u5", "-o", "json").stdout)["status"]["podIP"] == "192.0.2.5"
    missing = unchanged.command("describe", "nothing")
    assert missing.returncode == 1 and missing.stderr.startswith("no pod 'nothing' on this node (")
    events = json.loads(unchanged.command("events", "web-0", "-o", "json").stdout)
    assert [event["reason"] for event in events] == ["Pulling", "Failed"]
    assert events[0]["from"] == "podsync"
    of_static = json.loads(unchanged.command("events", "static", "-o", "json").stdout)  # the name in its manifest
    assert [event["reason"] for event in of_static] == ["Killing"]
    assert json.loads(unchanged.command("events", "no-such-pod", "-o", "json").stdout) == []


def test_restart_ends_the_process_and_waits_for_the_next_one(stage: Stage) -> None:
    settled(stage)
    before = stage.processes["podsync"]

    def start_again() -> None:  # as supervisord does
        before.wait()
        stage.run("podsync")

    supervisor = threading.Thread(target=start_again)
    supervisor.start()
    before.send_signal(signal.SIGSTOP)
    answer = stage.command("restart", "podsync")
    supervisor.join()
    after = stage.processes["podsync"]
    assert answer.stdout.startswith(f"podsync: process {before.pid} ended, {after.pid} runs after "), answer.stderr
    assert answer.returncode == 0


def test_an_unknown_service_is_wrong_usage(unchanged: Stage) -> None:
    assert unchanged.command("restart", "kubelet").returncode == 2


def test_status_loads_no_event_loop_and_no_library_that_it_does_not_use() -> None:
    code = "import sys, services.cli.command, services.cli.agent.status; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    slow = {
        "asyncio",
        "aiohttp",
        "concurrent.futures",
        "cryptography",
        "google.protobuf",
        "grpc",
        "kubernetes",
        "logging",
    }
    slow |= {"shared.config.effective", "supervisor", "yaml"}
    assert not slow & set(loaded)


@pytest.mark.long
def test_a_shell_completes_the_names_of_pods_also_while_podsync_is_stopped(stage: Stage) -> None:
    settled(stage)

    def completed() -> list[str]:
        words = f"bulkhead describe --run-dir {stage.run_dir} web-10"
        variables = {"_BULKHEAD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "4"}
        program = Path(sys.executable).with_name("bulkhead")
        answer = subprocess.run(
            [program], capture_output=True, text=True, check=True, timeout=WAIT_SECONDS, env={**os.environ, **variables}
        )
        return answer.stdout.split()

    def until_completed() -> None:
        """The shell gets the names, at once or as soon as the process that knows them answers within 0.3 s."""
        deadline = time.monotonic() + WAIT_SECONDS
        while (found := completed()) != wanted:
            assert time.monotonic() < deadline, found

    wanted = sorted(f"plain,{name}" for name in ("web-10", *(f"web-10{number}" for number in range(10))))
    until_completed()
    stage.processes["podsync"].send_signal(signal.SIGSTOP)
    until_completed()
