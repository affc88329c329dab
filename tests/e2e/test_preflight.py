"""What `bulkhead preflight` expects of pods of all kinds is what becomes of them on a real node."""

import asyncio
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.pod_specs import OBJECTS, pods_of_all_kinds
from tests.support.agents.agent import BIN, NODE
from tests.support.agents.world import World
from tests.support.waits.deadline import WAIT_SECONDS

pytestmark = [pytest.mark.root, pytest.mark.asyncio, pytest.mark.timeout(300)]

STATIC_CPUS = {"cpuManagerPolicy": "static", "systemReserved": {"cpu": "100m"}}
WAITING = ("FailedMount", "CreateContainerConfigError")


async def bulkhead(world: World, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command on this agent."""
    return await asyncio.to_thread(
        subprocess.run,
        [str(BIN / "bulkhead"), *words],
        env={**os.environ, "BULKHEAD_HOME": str(world.home.path)},
        capture_output=True,
        text=True,
        timeout=4 * WAIT_SECONDS,
        check=False,
    )


async def expected(world: World, place: Path) -> dict[str, dict[str, Any]]:
    """The verdict of preflight on each pod, before any of them is there."""
    flags = ("--", f"--config={world.home.path}/kubelet.yaml")
    seconds = f"--timeout={WAIT_SECONDS:.0f}"  # of each check
    answer = await bulkhead(world, "preflight", "--pods", str(place), "-o", "json", seconds, *flags)
    assert answer.returncode == 1, answer.stderr
    return {pod["name"]: pod for pod in json.loads(answer.stdout)["pods"]}


class Outcomes:
    """What becomes of the pods: `runs`, `rejected` with a reason, or `waits` with one."""

    def __init__(self, world: World, refused: list[str]) -> None:
        self._world = world
        # A manifest that names objects of the API is refused before admission, as by the kubelet.
        self.found = {line.partition(":")[0].partition("/")[2]: f"rejected {line}" for line in refused if "/" in line}

    async def all_of(self, names: set[str]) -> bool:
        """Whether there is an outcome for each; asks for those that are missing."""
        events = await bulkhead(self._world, "events", "-o", "json")
        if events.returncode:
            return False  # no process has answered within a second
        waiting = {event["name"]: event["reason"] for event in json.loads(events.stdout) if event["reason"] in WAITING}
        for pod in await self._world.pods():
            name = pod["metadata"]["name"].removesuffix(f"-{NODE}")
            if (outcome := self._outcome(pod, waiting)) and name not in self.found:
                self.found[name] = outcome
        return names <= self.found.keys()

    def _outcome(self, pod: Any, waiting: dict[str, str]) -> str:
        status = pod["status"]
        if status["phase"] == "Failed":
            return f"rejected {status.get('reason')}"
        states = [one["state"] for one in status.get("containerStatuses") or ()]
        if status["phase"] == "Running" and any("running" in state for state in states):
            return "runs"
        reasons = {(state.get("waiting") or {}).get("reason") for state in states}
        reason = waiting.get(pod["metadata"]["name"]) or next((one for one in WAITING if one in reasons), "")
        return f"waits {reason}" if reason and status["phase"] == "Pending" else ""


async def test_preflights_verdict_on_pods_of_all_kinds_is_what_becomes_of_them(tmp_path: Path) -> None:
    supported, lacking = pods_of_all_kinds()
    pods = tmp_path / "pods"
    pods.mkdir()
    for pod in (*supported, *lacking):
        (pods / f"{pod['metadata']['name']}.json").write_text(json.dumps(pod))
    (tmp_path / "objects.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": OBJECTS}))
    names = {pod["metadata"]["name"] for pod in (*supported, *lacking)}
    assert (len(names), len(lacking)) == (47, 16)
    async with World(config=STATIC_CPUS) as world:
        verdicts = await expected(world, pods)
        assert verdicts.keys() == names
        begin = time.monotonic()
        files = [word for name in sorted(names) for word in ("-f", str(pods / f"{name}.json"))]
        applied = await bulkhead(world, "pods", "apply", "-f", str(tmp_path / "objects.json"), *files)
        outcomes = Outcomes(world, applied.stderr.splitlines())
        try:
            await world.wait_for(lambda: outcomes.all_of(names), "an outcome of each pod", 3 * WAIT_SECONDS)
        except AssertionError as error:
            raise AssertionError(
                f"{error}; missing: {sorted(names - outcomes.found.keys())}; {applied.stderr}"
            ) from None
        print(f"{len(names)} pods have an outcome after {time.monotonic() - begin:.1f} s")
    wrong = {}
    for name, verdict in verdicts.items():
        effects = {reason["effect"] for reason in verdict["reasons"]}
        shown = "runs" if not effects else "rejected" if "rejected" in effects else "waits"
        outcome = outcomes.found[name]
        # Static pods that name objects of the API are refused instead of waiting for their volumes.
        same = outcome.startswith(shown) or (shown == "waits" and "static pods may not reference" in outcome)
        if not same:
            wrong[name] = (verdict["verdict"], outcome)
    assert wrong == {}
    assert {verdicts[pod["metadata"]["name"]]["verdict"] for pod in supported} == {"runs"}
    assert {verdicts[pod["metadata"]["name"]]["verdict"] for pod in lacking} == {"cannot run yet"}
