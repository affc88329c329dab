"""Runs the scenarios for the floor and then for each agent in turn, each with a fresh node, in as many rounds as
requested.

Prints its progress. When a scenario fails, the run reports it, continues, and fails at its end.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from bench.errors import BenchError
from bench.figure import Plan, Samples, Scenario
from bench.site import Node, Site
from bench.statistics import summarize
from shared.cri.interface import RuntimeCallError
from shared.kube.interface import ApiError

Progress = Callable[[str], None]  # prints a line
FLOOR = "floor"
MAX_SCENARIO_SECONDS = 900.0


@dataclass
class Run:
    """The samples of every session, and a line for each scenario that failed."""

    plan: Plan
    agents: tuple[str, ...]
    sessions: list[Samples] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0


async def measure(folder: Path, plan: Plan, agents: Sequence[str], scenarios: Sequence[Scenario]) -> Run:
    """Run all scenarios with the programs in `folder`."""
    run, began = Run(plan, tuple(agents)), time.monotonic()

    def progress(text: str) -> None:
        print(f"[{time.monotonic() - began:6.0f} s] {text}", flush=True)

    progress("starting control plane and containerd")
    async with Site(folder, equal_rates=plan.equal_rates) as site:
        for number in range(1, plan.rounds + 1):
            for agent in (FLOOR, *agents):
                wanted = [one for one in scenarios if one.floor == (agent == FLOOR) and (plan.large or not one.large)]
                if wanted:
                    await _session(site, run, agent, number, wanted, progress)
    run.seconds = time.monotonic() - began
    return run


async def _session(site: Site, run: Run, agent: str, number: int, wanted: list[Scenario], progress: Progress) -> None:
    samples = Samples(agent, number)
    run.sessions.append(samples)
    where = f"round {number}/{run.plan.rounds} {agent}"
    if agent == FLOOR:
        await run_scenario(site, wanted[0], samples, run, where, progress)
        return
    try:
        async with site.node(agent) as node:
            for scenario in wanted:
                if not await run_scenario(node, scenario, samples, run, where, progress):
                    await _clear(node)
    except (BenchError, ApiError) as error:
        run.failures.append(f"{where}: {error}")
        progress(run.failures[-1])


async def run_scenario(
    place: "Node | Site", scenario: Scenario, samples: Samples, run: Run, where: str, progress: Progress
) -> bool:
    """Run one scenario. Return whether all of its figures were measured."""
    progress(f"{where}: {scenario.name} …")
    try:
        await asyncio.wait_for(scenario.run(place, samples, run.plan), MAX_SCENARIO_SECONDS)
    except (BenchError, ApiError, RuntimeCallError, aiohttp.ClientError, OSError) as error:
        run.failures.append(f"{where}: {scenario.name}: {str(error) or type(error).__name__}")
        progress(run.failures[-1])
        return False
    for figure in scenario.figures:
        if figure.key in samples.absent:
            progress(f"{where}:   {figure.title}: absent ({samples.absent[figure.key]})")
            continue
        try:
            taken = summarize(samples.values.get(figure.key, []), figure.better)
        except ValueError as error:
            run.failures.append(f"{where}: {scenario.name}: {figure.title}: {error}")
            progress(run.failures[-1])
        else:
            progress(f"{where}:   {figure.title}: {taken.p50:.3g} {figure.unit} (max {taken.max:.3g}, n {taken.count})")
    return True


async def _clear(node: Node) -> None:
    """Remove the pods of a failed scenario, so that the next one begins without pods."""
    try:
        await node.delete_all()
    except (BenchError, ApiError):
        await node.force_away()
