"""Measures the ends of containers: the first process of a container is killed from outside, at random moments."""

import asyncio
import os
import random
import signal
import time

from bench.figure import Figure, Plan, Samples, Scenario
from bench.site import MAX_POD_SECONDS, Node
from bench.statistics import Goal
from bench.watch import Test, restarted, terminated

STATUS = Figure(
    "exits.status",
    "container exit → status in the API",
    "s",
    (Goal("p50", "ratio", 0.10), Goal("max", "ratio", 0.30), Goal("p50", "value", 0.05)),
    "0.49 / max 1.00",
)
RESTARTED = Figure(
    "exits.restarted",
    "container exit → restarted",
    "s",
    (Goal("p50", "ratio", 0.15), Goal("p50", "floor", 0.10, "floor.container")),
    "0.59",
)
MAX_PHASE_SECONDS = 1.0  # of the random delay, so that an agent that polls is met at any point of its period


async def exits(node: Node, samples: Samples, plan: Plan) -> None:
    """Measure exits of containers: half of the pods are never restarted, the others always; each container ends
    once."""
    for policy, test, figure in (("Never", terminated, STATUS), ("Always", restarted, RESTARTED)):
        names = node.new_names("exit", plan.exits)
        await node.create_all([node.pod(name, restartPolicy=policy) for name in names])
        for name in names:
            samples.sample(figure.key, await _end(node, name, test))
    await node.delete_all()


async def _end(node: Node, name: str, test: Test) -> float:
    """Kill the container's first process. Return the seconds until an event meets the test."""
    pid = await node.first_process(name)
    await asyncio.sleep(random.uniform(0, MAX_PHASE_SECONDS))
    expected = node.watch.pod(name, test, "to show the end of its container")
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    return (await expected.within(MAX_POD_SECONDS)).at - began


SCENARIOS = (Scenario("exits", exits, (STATUS, RESTARTED)),)
