"""How long the commands of `bulkhead` take on a node with many pods, and while podsync does not answer.

`python -m bench.commands [--pods 110] [--runs 20]`, without a cluster, with an agent and a containerd of its own.
Prints median and maximum of 20 processes, the CPU of one, and the load of the machine.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.errors import BenchError
from bench.statistics import summarize
from tests.support.agents.agent import BIN
from tests.support.agents.world import World, busybox_pod

PODS, RUNS = 110, 20
MAX_START_SECONDS = 900.0  # until all pods run
_RUN_DIR = "--run-dir"
_TABLE = "{:<44}{:>12}{:>9}{:>9}{:>9}"
_STATES = {  # by what podsync does: what `status` reports about it; "" = nothing
    "podsync runs": "",
    "podsync stopped by SIGSTOP": "podsync is stopped by a signal",
    "podsync stopped by supervisorctl": "podsync does not run",
}


@dataclass(frozen=True)
class Command:
    """One command line. `codes`: the exit codes that it may end with; `environment`: more variables."""

    title: str
    words: tuple[str, ...]
    codes: tuple[int, ...] = (0,)
    environment: Mapping[str, str] = field(default_factory=dict)


def commands(run_dir: str, pod: str) -> tuple[Command, ...]:
    """Return the commands to measure. `pod`: a pod that runs."""
    program, here = str(BIN / "bulkhead"), (_RUN_DIR, run_dir)
    typed = f"bulkhead describe {_RUN_DIR} {run_dir} {pod[:-1]}"
    completion = {"_BULKHEAD_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": "4"}
    return (
        Command("status", (program, "status", *here), (0, 3)),
        Command("status -o json", (program, "status", "-o", "json", *here), (0, 3)),
        Command("pods", (program, "pods", *here)),
        Command("explain", (program, "explain", *here)),
        Command("explain POD", (program, "explain", pod, *here)),
        Command("top -o json", (program, "top", "-o", "json", *here)),
        Command("logs POD", (program, "logs", pod, *here)),
        Command("completion of POD", (program,), environment=completion),
        Command("bulkhead --version", (program, "--version")),
        Command("kubelet --version", (str(BIN / "kubelet"), "--version")),
    )


@dataclass
class Times:
    """Seconds of each run of one command: from its start to its end, and of CPU."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def run_once(command: Command, times: Times) -> None:
    """Run the command to its end. Raises BenchError for another exit code."""
    began = time.monotonic()
    process = subprocess.Popen(
        command.words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, **command.environment},
    )  # fmt: skip
    _, status, usage = os.wait4(process.pid, 0)
    times.wall.append(time.monotonic() - began)
    times.cpu.append(usage.ru_utime + usage.ru_stime)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in command.codes:
        raise BenchError(f"{' '.join(command.words)}: exit code {process.returncode}")


def table(state: str, measured: Mapping[str, Times]) -> list[str]:
    """Return a line for each command, in seconds."""
    lines = [_TABLE.format(state, "median", "max", "CPU", "runs")]
    for title, times in measured.items():
        wall, cpu = summarize(times.wall), summarize(times.cpu)
        lines.append(_TABLE.format(f"  {title}", f"{wall.p50:.3f}", f"{wall.max:.3f}", f"{cpu.p50:.3f}", wall.count))
    return lines


async def measure(pods: int, runs: int) -> None:
    """Measure the commands, and print the table. Raises BenchError."""
    async with World(config={"maxPods": pods + 10}) as world:
        for number in range(pods):
            world.put_manifest(f"web-{number}", busybox_pod(f"web-{number}", "sh", "-c", "echo started; sleep 1000000"))
        began = time.monotonic()
        await world.wait_for(lambda: _all_run(world, pods), f"{pods} pods to run", MAX_START_SECONDS)
        print(f"{pods} pods run after {time.monotonic() - began:.0f} s, load {_load()}", flush=True)
        for state, reported in _STATES.items():
            if "SIGSTOP" in state:
                world.kill("podsync", signal.SIGSTOP)
            elif "supervisorctl" in state:
                world.kill("podsync", signal.SIGCONT)
                world.supervisorctl("stop", "podsync")
            await asyncio.to_thread(_expect, world, reported)
            measured = await asyncio.to_thread(_measured, commands(str(world.home.run_dir), f"web-{pods - 1}"), runs)
            print("\n".join(table(f"{state}, load {_load()}", measured)), flush=True)


def _measured(chosen: Sequence[Command], runs: int) -> dict[str, Times]:
    """Run each command this often, in turns, so that a busy moment of the machine affects all of them. Return their
    times."""
    measured = {command.title: Times() for command in chosen}
    for _ in range(runs):
        for command in chosen:
            run_once(command, measured[command.title])
    return measured


async def _all_run(world: World, pods: int) -> bool:
    listed = await world.pods()
    return len(listed) == pods and all((pod.get("status") or {}).get("phase") == "Running" for pod in listed)


def _expect(world: World, reported: str) -> None:
    """Raise BenchError where `status` does not report the state."""
    command = [str(BIN / "bulkhead"), "status", _RUN_DIR, str(world.home.run_dir)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    if reported not in shown or (not reported and not shown.startswith("node ")):
        raise BenchError(f"bulkhead status does not report {reported!r}: {shown[:500]}")


def _load() -> str:
    return Path("/proc/loadavg").read_text().split()[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program. Return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.commands", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--pods", type=int, default=PODS, help=f"that run meanwhile (default {PODS})")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each command in each state (default {RUNS})")
    given = parser.parse_args(arguments)
    try:
        asyncio.run(measure(given.pods, given.runs))
    except BenchError as error:
        print(f"bench.commands: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
