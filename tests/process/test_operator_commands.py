"""The commands of `bulkhead` on a real agent, alone on its machine: ready, restarted, with a stopped service."""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from bus.messages.streams import SERVICES
from tests.agent import BIN
from tests.world import World, busybox_pod

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with World() as world:
        world.put_manifest("steady", busybox_pod("steady"))
        await world.wait_running("steady")
        yield world


async def bulkhead(world: World, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command; the test follows the agent meanwhile."""
    command = [str(BIN / "bulkhead"), *words, "--run-dir", str(world.home.run_dir)]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False, text=True, timeout=200)


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


async def test_pods_describe_events_and_logs_show_the_pod(world: World) -> None:
    assert "steady" in (await bulkhead(world, "pods")).stdout
    described = (await bulkhead(world, "describe", "steady")).stdout
    assert "State:      Running" in described and "running since" in described
    assert "Started" in (await bulkhead(world, "events", "-o", "json")).stdout
    assert "steady" in (await bulkhead(world, "logs", "--service", "sources", "steady")).stdout


async def test_top_shows_the_memory_of_the_pod_and_its_container(world: World) -> None:
    answer = await bulkhead(world, "top", "--containers")
    assert answer.returncode == 0, answer.stderr
    names = [line.split()[0] for line in answer.stdout.splitlines()]
    assert names == ["NAME", "node", "default/steady-node-a", "main"]
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
