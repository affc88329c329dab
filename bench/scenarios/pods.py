"""Measures pods one after another, and many at once with the CPU that the burst costs."""

import asyncio
import random

from bench.figure import Figure, Plan, Samples, Scenario
from bench.site import Node
from bench.statistics import Goal

READY = Figure(
    "pods.ready",
    "create → Ready",
    "s",
    (
        Goal("p50", "ratio", 0.28),
        Goal("p90", "ratio", 0.32),
        Goal("p50", "floor", 0.10, "floor.start"),
    ),
    "0.57 / 0.70",
)
GONE = Figure(
    "pods.gone",
    "delete → gone",
    "s",
    (Goal("p50", "ratio", 0.05), Goal("p50", "floor", 0.20, "floor.stop")),
    "1.09",
)
BURST_READY = Figure("burst.ready", "burst of 30 → all Ready", "s", (Goal("p50", "ratio", 0.22),), "5.7")
BURST_GONE = Figure("burst.gone", "burst of 30 → all gone", "s")
BURST_CPU = Figure(
    "burst.cpu", "CPU in the burst of 30", "s", (Goal("p50", "ratio", 1.0), Goal("p50", "value", 0.9)), "1.1"
)
LARGE_READY = Figure("burst.large_ready", "burst of 100 → all Ready", "s", (Goal("p50", "value", 13.44),), "16.8")
LARGE_GONE = Figure("burst.large_gone", "burst of 100 → all gone", "s", (Goal("p50", "value", 10.08),), "16.8")


async def one_by_one(node: Node, samples: Samples, plan: Plan) -> None:
    """Create pods one by one: each is seen Ready, deleted, and seen gone before the next."""
    for name in node.new_names("one", plan.one_by_one):
        samples.sample(READY.key, await node.create(node.pod(name)))
        # Its shell has set its trap by then, and the random time favours no agent's period.
        await asyncio.sleep(random.uniform(0.3, 1.3))
        samples.sample(GONE.key, await node.delete(name))


async def burst_ready(node: Node, samples: Samples, count: int, ready: Figure, cpu: Figure | None) -> None:
    """Measure a burst of this many pods, and the CPU until the last one is Ready."""
    pods = [node.pod(name) for name in node.new_names("burst", count)]
    before = node.agent.processes.cpu()
    samples.sample(ready.key, await node.create_all(pods))
    if cpu is not None:
        samples.sample(cpu.key, node.agent.processes.cpu() - before)


async def burst_gone(node: Node, samples: Samples, gone: Figure) -> None:
    """Delete all pods at once, and measure how long that takes."""
    samples.sample(gone.key, await node.delete_all())


SCENARIOS = (Scenario("pods", one_by_one, (READY, GONE)),)
