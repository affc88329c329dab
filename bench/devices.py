"""What devices cost an agent: CPU and memory of a node of 8 GPUs with 30 pods, of which 8 have one each, and of a node
without device plugins with the same pods.

`python -m bench.devices [--pods 30] [--gpus 8] [--rounds 3]`, without a cluster, with an agent and a containerd of its
own for each sample. Both nodes are measured in turns, so that a busy moment of the machine affects both.
"""

import argparse
import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.processes import AgentProcesses
from bench.statistics import summarize
from bus.messages.services import SERVICES
from services.cli.agent.local_agent import local_agent
from tests.support.agents.world import World, busybox_pod
from tools.home import CHECKOUT

PODS, GPUS, ROUNDS = 30, 8, 3
GPU = "example.com/gpu"
IDLE_SECONDS = 60.0
MAX_START_SECONDS = 600.0  # until all pods run
RESTING_CPU = 0.1  # seconds in a second
MAX_RESTS = 120  # seconds for which the agent may take more than that after the starts
_OURS = {"supervisord", *SERVICES}
_TABLE = "{:<44}{:>12}{:>12}{:>10}"


@dataclass(frozen=True)
class Sample:
    """What one agent has used: CPU seconds from the first pod until it rests, CPU seconds of a minute without changes,
    and MiB of proportional memory that belongs to no file."""

    starts: float
    idle: float
    memory: float


FIGURES = {"starts": "CPU of the starts, s", "idle": "CPU idle, per minute, s", "memory": "memory without files, MiB"}


def table(without: Sequence[Sample], with_devices: Sequence[Sample]) -> list[str]:
    """Return a line for each figure: the medians of both nodes, and how much more devices cost."""
    lines = [_TABLE.format(f"medians of {len(without)}", "no devices", "devices", "more")]
    for name, title in FIGURES.items():
        before, after = (summarize([getattr(one, name) for one in samples]).p50 for samples in (without, with_devices))
        lines.append(_TABLE.format(f"  {title}", f"{before:.2f}", f"{after:.2f}", f"{after / before - 1:+.1%}"))
    return lines


@contextlib.asynccontextmanager
async def _plugin(world: World, gpus: int) -> AsyncIterator[None]:
    """Run a device plugin, and wait until the node has its devices."""
    directory = world.home.path / "kubelet" / "device-plugins"
    ids = ",".join(f"gpu-{number}" for number in range(gpus))
    command = [sys.executable, "-m", "tests.programs.device_plugin", str(directory), GPU, "--ids", ids]
    process = await asyncio.to_thread(subprocess.Popen, command, cwd=CHECKOUT)

    def amount() -> str:
        with local_agent(str(world.home.run_dir)) as agent:
            resources = agent.streams("node.resources")["node.resources"] or {}
        return str(resources.get("node", {}).get("allocatable", {}).get(GPU))

    async def is_known() -> bool:
        return await asyncio.to_thread(amount) == str(gpus)

    try:
        await world.wait_for(is_known, f"the node to have {gpus} {GPU}")
        yield
    finally:
        process.kill()
        process.wait()


async def sample(pods: int, gpus: int) -> Sample:
    """Measure one agent; `gpus` 0 = a node without device plugins."""
    async with World(config={"maxPods": pods + 10}) as world, contextlib.AsyncExitStack() as stack:
        if gpus:
            await stack.enter_async_context(_plugin(world, gpus))
        agent = AgentProcesses(world.supervisord_pid)
        await _rest(agent)
        began = agent.cpu()
        for number in range(pods):
            pod = busybox_pod(f"pod-{number}", "sleep", "1000000")
            if number < gpus:
                pod["spec"]["containers"][0]["resources"] = {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
            world.put_manifest(f"pod-{number}", pod)

        async def all_run() -> bool:
            listed = await world.pods()
            return len(listed) == pods and all(pod.get("status", {}).get("phase") == "Running" for pod in listed)

        await world.wait_for(all_run, f"{pods} pods to run", MAX_START_SECONDS)
        await _rest(agent)
        started = agent.cpu()
        await asyncio.sleep(IDLE_SECONDS)
        idle = (agent.cpu() - started) * 60 / IDLE_SECONDS
        memory = sum(pss for name, pss in agent.memory("Pss_Anon").items() if name in _OURS)
    return Sample(starts=started - began, idle=idle, memory=memory)


async def _rest(agent: AgentProcesses) -> None:
    """Wait until the agent uses almost no CPU for three seconds. Raises BenchError."""
    resting = 0
    for _ in range(MAX_RESTS):
        before = agent.cpu()
        await asyncio.sleep(1)
        resting = resting + 1 if agent.cpu() - before <= RESTING_CPU else 0
        if resting == 3:
            return
    raise BenchError(f"the agent works for {MAX_RESTS} s after the starts")


async def measure(pods: int, gpus: int, rounds: int) -> None:
    """Measure both nodes this often, and print each sample and the table. Raises BenchError."""
    samples: dict[int, list[Sample]] = {0: [], gpus: []}
    for number in range(rounds):
        for count in (0, gpus) if number % 2 == 0 else (gpus, 0):
            one = await sample(pods, count)
            samples[count].append(one)
            load = Path("/proc/loadavg").read_text().split()[0]
            print(
                f"{count} devices: {one.starts:.2f} s, {one.idle:.2f} s, {one.memory:.1f} MiB, load {load}", flush=True
            )
    print("\n".join(table(samples[0], samples[gpus])), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program. Return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.devices", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--pods", type=int, default=PODS, help=f"that run (default {PODS})")
    parser.add_argument("--gpus", type=int, default=GPUS, help=f"of which a pod has one each (default {GPUS})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"samples of each node (default {ROUNDS})")
    given = parser.parse_args(arguments)
    if not 0 < given.gpus <= given.pods:
        parser.error("there must be at least one GPU, and a pod for each")
    try:
        asyncio.run(measure(given.pods, given.gpus, given.rounds))
    except BenchError as error:
        print(f"bench.devices: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
