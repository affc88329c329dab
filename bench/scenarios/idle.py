"""Measures a node with pods that do nothing: its requests to the API server, its CPU and its memory.

The pods of these scenarios are the burst's, so that both are measured with one set of pods.
"""

import asyncio
import time
from collections import Counter

from bench.figure import Figure, Plan, Samples, Scenario
from bench.scenarios.pods import (
    BURST_CPU,
    BURST_GONE,
    BURST_READY,
    LARGE_GONE,
    LARGE_READY,
    burst_gone,
    burst_ready,
)
from bench.site import Node
from bench.statistics import Goal

REQUESTS = Figure("idle.requests", "API requests, idle with 30 pods", "1/min")
CPU = Figure(
    "idle.cpu", "CPU idle with 30 pods", "s/min", (Goal("p50", "ratio", 0.50), Goal("p50", "value", 0.7)), "1.74"
)
LARGE_CPU = Figure("idle.large_cpu", "CPU idle with 100 pods", "s/min", (Goal("p50", "value", 1.5),), "3.98")
PSS_EMPTY = Figure("memory.empty", "PSS without pods", "MiB")
PSS = Figure("memory.burst", "PSS with 30 pods", "MiB", (Goal("p50", "ratio", 2.0),), "104")
PSS_LARGE = Figure("memory.large", "PSS with 100 pods", "MiB")


async def empty(node: Node, samples: Samples, plan: Plan) -> None:
    """Measure the node before its first pod."""
    await asyncio.sleep(plan.settle / 3)
    _memory(node, samples, PSS_EMPTY)


async def burst_and_idle(node: Node, samples: Samples, plan: Plan) -> None:
    """Measure a burst of pods, then the idle pods, then the deletion of all at once."""
    await burst_ready(node, samples, plan.burst, BURST_READY, BURST_CPU)
    await asyncio.sleep(plan.settle)
    await _idle(node, samples, plan, CPU, REQUESTS)
    _memory(node, samples, PSS)
    await burst_gone(node, samples, BURST_GONE)


async def large(node: Node, samples: Samples, plan: Plan) -> None:
    """Measure the same as `burst_and_idle` with many pods."""
    await burst_ready(node, samples, plan.large, LARGE_READY, None)
    await asyncio.sleep(plan.settle)
    await _idle(node, samples, plan, LARGE_CPU, None)
    _memory(node, samples, PSS_LARGE)
    await burst_gone(node, samples, LARGE_GONE)


async def _idle(node: Node, samples: Samples, plan: Plan, cpu: Figure, requests: Figure | None) -> None:
    plane, processes = node.site.plane, node.agent.processes
    plane.forget_requests()
    before, began = processes.cpu(), time.monotonic()
    await asyncio.sleep(plan.idle)
    minutes = (time.monotonic() - began) / 60
    samples.sample(cpu.key, (processes.cpu() - before) / minutes)
    if requests is not None:
        counted = plane.requests_by_user().get(node.user, Counter())
        samples.sample(requests.key, sum(counted.values()) / minutes)
        for what, count in counted.items():
            samples.detail(requests.title, what, count / minutes)


def _memory(node: Node, samples: Samples, figure: Figure) -> None:
    by_process = node.agent.processes.memory()
    samples.sample(figure.key, sum(by_process.values()))
    for name, mebibytes in by_process.items():
        samples.detail(figure.title, name, mebibytes)


SCENARIOS = (
    Scenario("empty", empty, (PSS_EMPTY,)),
    Scenario(
        "burst",
        burst_and_idle,
        (BURST_READY, BURST_CPU, BURST_GONE, CPU, REQUESTS, PSS),
    ),
    Scenario("large", large, (LARGE_READY, LARGE_GONE, LARGE_CPU, PSS_LARGE), large=True),
)
