"""The commands of `bulkhead` on a real agent, alone on its machine: ready, restarted, with a stopped service."""

import asyncio
import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from bus.messages.streams import SERVICES
from tests.support.agents.agent import BIN
from tests.support.agents.world import World, busybox_pod
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with World() as world:
        world.put_manifest("steady", busybox_pod("steady", "sh", "-c", "echo started; exec sleep 1000000"))
        pod = await world.wait_running("steady")
        log = world.home.log_dir / f"pods/default_{pod.name}_{pod.uid}/main/0.log"
        await world.wait_for(lambda: log.exists() and "started" in log.read_text(), "the container to write")
        await world.wait_served("steady")
        yield world


def command_of(world: World, name: str, *words: str) -> list[str]:
    """The command line of `bulkhead` for this agent."""
    return [str(BIN / "bulkhead"), name, "--run-dir", str(world.home.run_dir), *words]


async def bulkhead(world: World, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command, with `given` as its input; the test follows the agent meanwhile."""
    return await asyncio.to_thread(
        subprocess.run,
        command_of(world, *words),
        capture_output=True,
        check=False,
        text=True,
        timeout=4 * WAIT_SECONDS,
        input=given,
    )


async def report(world: World, *words: str) -> dict[str, Any]:
    """What `bulkhead status -o json` prints."""
    answer = await bulkhead(world, "status", "-o", "json", *words)
    assert answer.stdout, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


async def test_status_waits_for_a_ready_node_and_shows_its_processes_and_pod(world: World) -> None:
    found = await report(world, "--wait-ready")
    assert found["ready"], found["problems"]
    assert found["standalone"] and found["runtime"]["ready"]
    assert {row["service"]: row["pid"] for row in found["processes"]} == {name: world.pid_of(name) for name in SERVICES}
    assert [(row["state"], row["ready"], row["waits_for"]) for row in found["pods"]] == [("Running", 1, "")]
    assert {row["name"]: row["stale_in"] for row in found["streams"] if row["stale_in"]} == {}
    assert [row["name"] for row in found["streams"] if row["incomplete_in"]] == []


async def test_pods_describe_events_and_logs_show_the_pod(world: World) -> None:
    assert "steady" in (await bulkhead(world, "pods")).stdout
    described = (await bulkhead(world, "describe", "steady")).stdout
    assert "State:      Running" in described and "running since" in described
    assert "Started" in (await bulkhead(world, "events", "-o", "json")).stdout
    assert "Started" in (await bulkhead(world, "events", "steady")).stdout
    assert "steady" in (await bulkhead(world, "logs", "--service", "sources", "steady")).stdout


async def test_logs_shows_and_follows_what_the_container_writes(world: World) -> None:
    assert (await bulkhead(world, "logs", "steady")).stdout == "started\n"
    missing = await bulkhead(world, "logs", "steady", "-c", "other")
    assert (missing.returncode, missing.stderr) == (1, "the pod has no container 'other' (it has main)\n")

    def follow() -> tuple[str, int]:
        # A test that runs in the background of a shell ignores SIGINT, and so would its children.
        command = ["env", "--default-signal=INT", *command_of(world, "logs", "-f", "steady")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            line = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            return line, process.wait(WAIT_SECONDS)

    assert await asyncio.to_thread(follow) == ("started\n", 130)


async def test_exec_passes_input_output_and_exit_code(world: World) -> None:
    answer = await bulkhead(world, "exec", "-i", "steady", "--", "sh", "-c", "cat; echo bad >&2; exit 7", given="hello")
    assert (answer.stdout, answer.stderr, answer.returncode) == ("hello", "bad\n", 7)
    assert (await bulkhead(world, "exec", "steady", "--", "true")).returncode == 0
    missing = await bulkhead(world, "exec", "steady", "--", "no-such-program")
    assert missing.returncode != 0 and "no-such-program" in missing.stderr


async def test_exec_gives_a_command_a_terminal_of_the_same_size(world: World) -> None:
    ours, theirs = os.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    wait_for_size = 'until [ "$(stty size 2>/dev/null)" = "33 77" ]; do sleep 0.1; done; tty; exit 3'
    words = command_of(world, "exec", "-it", "steady", "--", "sh", "-c", wait_for_size)
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    before = termios.tcgetattr(theirs)
    process = await asyncio.to_thread(
        subprocess.run,
        words,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        check=False,
        timeout=4 * WAIT_SECONDS,
        env=environment,
    )
    output = b""
    while b"/dev/pts/" not in output:  # the kernel passes on what was written a little later, perhaps in pieces
        assert select.select([ours], [], [], WAIT_SECONDS)[0], output
        output += os.read(ours, 4096)
    assert process.returncode == 3
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


async def test_explain_lists_the_pod_and_shows_images_and_the_node(world: World) -> None:
    assert "steady-node-a" in (await bulkhead(world, "explain")).stdout
    assert "container main of attempt 0 is started" in (await bulkhead(world, "explain", "steady")).stdout
    images = (await bulkhead(world, "explain", "image", "busybox")).stdout
    assert "default/steady-node-a" in images
    node = (await bulkhead(world, "explain", "node")).stdout.splitlines()
    assert any("Ready is True: KubeletReady" in line for line in node)
    assert any(line.startswith("Ready ") and "True" in line for line in node)


async def test_top_shows_cpu_and_memory_of_the_pod_and_its_container_at_its_first_call(world: World) -> None:
    answer = await bulkhead(world, "top", "--containers")
    assert answer.returncode == 0, answer.stderr
    rows = [line.split() for line in answer.stdout.splitlines()]
    assert [row[0] for row in rows] == ["NAME", "node", "default/steady-node-a", "main"]
    assert all(re.fullmatch(r"\d+m", row[1]) for row in rows[1:]), rows
    found = json.loads((await bulkhead(world, "top", "-o", "json")).stdout)
    assert found["pods"][0]["cgroup"]["memory_working_set"] > 0


async def test_restart_replaces_services_and_leaves_the_others_alone(world: World) -> None:
    before = {name: world.pid_of(name) for name in SERVICES}
    answer = await bulkhead(world, "restart", "pleg", "volume")
    assert answer.returncode == 0, answer.stderr
    assert {name for name in SERVICES if world.pid_of(name) != before[name]} == {"pleg", "volume"}
    assert (await report(world, "--wait-ready"))["ready"]


async def test_restart_ends_a_service_that_a_signal_has_stopped(world: World) -> None:
    before = world.pid_of("podsync")
    world.kill("podsync", signal.SIGSTOP)
    found = await report(world)
    assert any(line.startswith("podsync is stopped by a signal") for line in found["problems"])
    assert [row["state"] for row in found["pods"]] == ["Running"]
    assert (await bulkhead(world, "restart", "podsync")).returncode == 0
    assert world.pid_of("podsync") != before
    assert (await report(world, "--wait-ready"))["ready"]
