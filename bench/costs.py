"""Measures what a burst of pods and an idle minute cost each process: CPU seconds, and with `--bus` messages, bytes and
decodes.

`python -m bench.costs [--beside CHECKOUT]` compares two checkouts on one control plane, each with a containerd of its
own: their bursts alternate and their idle minutes are the same, so that a busy machine does the same to both.
"""

import argparse
import asyncio
import copy
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.agents import BULKHEAD
from bench.processes import TICKS, AgentProcesses, label
from bench.site import PROGRAMS, Node, Site
from shared.cri.client import CriRuntime
from tests.support.clusters.control_plane import assets
from tests.support.runtime.containerd import PrivateContainerd

HERE = Path(__file__).resolve().parent.parent
COUNTING = HERE / "bench" / "counting"
SETTLE_SECONDS = 12.0  # after a burst, before the next phase
Counts = Counter[tuple[str, str, str]]  # by process, kind, and stream or type: a number, or bytes


@dataclass
class Side:
    """One checkout's agent, and its costs in each phase."""

    checkout: Path
    node: Node
    counts: Path | None  # the folder of `bench.counting`
    ticks: dict[str, Counter[str]] = field(default_factory=dict)  # by phase and process: clock ticks of CPU
    seconds: dict[str, float] = field(default_factory=dict)
    writes: Counter[str] = field(default_factory=Counter)  # patches of pod statuses by phase
    bus: dict[str, tuple[Counts, Counts]] = field(default_factory=dict)  # numbers and bytes by phase


class Phase:
    """`async with Phase(side, name):` adds the costs of the side while the block runs."""

    def __init__(self, side: Side, name: str) -> None:
        self._side, self._name = side, name

    async def __aenter__(self) -> None:
        side = self._side
        self._before, self._began = ticks_by_process(side.node.agent.processes), time.monotonic()
        self._patched = _patches(side)
        self._offsets = {file: file.stat().st_size for file in side.counts.iterdir()} if side.counts else {}

    async def __aexit__(self, *_: object) -> None:
        side, name = self._side, self._name
        side.seconds[name] = side.seconds.get(name, 0.0) + time.monotonic() - self._began
        spent = ticks_by_process(side.node.agent.processes) - self._before
        side.ticks.setdefault(name, Counter()).update(spent)
        side.writes[name] += _patches(side) - self._patched
        if side.counts:
            numbers, sizes = side.bus.setdefault(name, (Counter(), Counter()))
            more, bigger = read_counts(side.counts, self._offsets)
            numbers.update(more)
            sizes.update(bigger)


def ticks_by_process(processes: AgentProcesses) -> Counter[str]:
    """Return the user and system time so far, in clock ticks, by the names of the processes."""
    found: Counter[str] = Counter()
    for process in processes.all().values():
        found[label(process.name, [])] += process.ticks
    return found


def read_counts(folder: Path, offsets: Mapping[Path, int]) -> tuple[Counts, Counts]:
    """Return numbers and bytes of what was written into the files of the folder after these offsets."""
    numbers: Counts = Counter()
    sizes: Counts = Counter()
    for file in sorted(folder.iterdir()):
        with file.open("rb") as opened:
            opened.seek(offsets.get(file, 0))
            for line in opened.read().splitlines():
                what, of, size = line.decode().split()
                numbers[label(file.stem, []), what, of] += 1
                sizes[label(file.stem, []), what, of] += int(size)
    return numbers, sizes


def _patches(side: Side) -> int:
    return side.node.site.plane.requests_by_user().get(side.node.user, Counter())["patch pods/status"]


async def measure(given: argparse.Namespace) -> list[Side]:
    """Run the measurement. Return the sides in the order of the checkouts."""
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(Site(assets()))
        sides: list[Side] = []
        for checkout in (*given.beside, HERE):
            folder = _folder(stack) if given.bus else None
            node = (await _place(stack, site, len(sides))).node(BULKHEAD)
            node.agent.environment = _environment(checkout, folder, given.profile)
            sides.append(Side(checkout, await stack.enter_async_context(node), folder))
        await asyncio.sleep(SETTLE_SECONDS)
        for number in range(given.rounds):
            for side in sides if number % 2 else reversed(sides):
                await _burst(side, given)
        if given.idle:
            await _idle(sides, given)
    return sides


def _folder(stack: AsyncExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bc", dir="/tmp")))


async def _place(stack: AsyncExitStack, site: Site, number: int) -> Site:
    """Return a site with its own containerd, because an agent removes the pods that it does not know."""
    if number == 0:
        return site
    place = copy.copy(site)
    place.containerd = PrivateContainerd(_folder(stack), PROGRAMS)
    stack.push_async_callback(place.containerd.stop)
    place.containerd.start()
    place.containerd.import_images()
    place.runtime = CriRuntime(place.containerd.endpoint, request_timeout=60.0)
    stack.push_async_callback(place.runtime.close)
    return place


def _environment(checkout: Path, counts: Path | None, profiles: Path | None) -> dict[str, str]:
    counting = [str(COUNTING)] if counts or profiles else []
    found = {"PYTHONPATH": os.pathsep.join([*counting, str(checkout)])}
    if counts:
        found["BUS_COUNTS"] = str(counts)
    if profiles:
        (target := (profiles / checkout.name).resolve()).mkdir(parents=True, exist_ok=True)
        found["PYTHON_PROFILES"] = str(target)
    return found


async def _burst(side: Side, given: argparse.Namespace) -> None:
    pods = [side.node.pod(name) for name in side.node.new_names("burst", given.pods)]
    recording = _record(side, given, "burst")
    async with Phase(side, "burst"):
        ready = await side.node.create_all(pods)
    _end(recording)
    print(f"{side.checkout.name}: all {given.pods} Ready after {ready:.2f} s", flush=True)
    await asyncio.sleep(SETTLE_SECONDS)
    async with Phase(side, "removal"):
        await side.node.delete_all()
    await asyncio.sleep(SETTLE_SECONDS)


async def _idle(sides: Sequence[Side], given: argparse.Namespace) -> None:
    for side in sides:
        await side.node.create_all([side.node.pod(name) for name in side.node.new_names("idle", given.pods)])
    await asyncio.sleep(2 * SETTLE_SECONDS)
    recordings = [_record(side, given, "idle") for side in sides]
    async with AsyncExitStack() as phases:
        for side in sides:
            await phases.enter_async_context(Phase(side, "idle"))
        await asyncio.sleep(given.idle)
    for recording in recordings:
        _end(recording)


def _record(side: Side, given: argparse.Namespace, phase: str) -> "subprocess.Popen[bytes] | None":
    """Record the agent's processes with perf until `_end`."""
    if given.perf is None:
        return None
    given.perf.mkdir(parents=True, exist_ok=True)
    target = given.perf / f"{side.checkout.name}-{phase}.data"
    pids = ",".join(str(pid) for pid in side.node.agent.processes.all())
    command = ["perf", "record", "-e", "cpu-clock", "-F", "997", "-g", "-o", str(target), "-p", pids]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _end(recording: "subprocess.Popen[bytes] | None") -> None:
    if recording is not None:
        recording.send_signal(signal.SIGINT)
        recording.wait()


def cpu_table(sides: Sequence[Side], phase: str, unit: str, factor: Sequence[float]) -> list[str]:
    """Return a table with a row for each process and a column for each side. `factor`: turns the seconds of a side into
    `unit`."""
    lines = [f"{f'CPU, {phase} ({unit})':<40}" + "".join(f"{side.checkout.name:>22}" for side in sides)]
    for name in sorted({name for side in sides for name in side.ticks[phase]}):
        cells = (side.ticks[phase][name] / TICKS * times for side, times in zip(sides, factor, strict=True))
        lines.append(f"  {name:<38}" + "".join(f"{cell:22.2f}" for cell in cells))
    cells = (side.ticks[phase].total() / TICKS * times for side, times in zip(sides, factor, strict=True))
    return [*lines, f"  {'all':<38}" + "".join(f"{cell:22.2f}" for cell in cells)]


def bus_table(sides: Sequence[Side], phase: str) -> list[str]:
    """Return a table with a row for each stream or type of each process, with number and KiB for each side; then the
    sums."""
    lines = [f"{f'bus, {phase} (number, KiB)':<40}" + "".join(f"{side.checkout.name:>22}" for side in sides)]
    for key in sorted({key for side in sides for key in side.bus[phase][0]}):
        cells = "".join(f"{side.bus[phase][0][key]:12d}{side.bus[phase][1][key] / 1024:10.1f}" for side in sides)
        lines.append(f"  {key[0]:<10}{key[1]:<10}{key[2]:<18}{cells}")
    for what in ("sent", "received", "decode"):
        cells = ""
        for numbers, sizes in (side.bus[phase] for side in sides):
            chosen = [key for key in numbers if key[1] == what]
            cells += f"{sum(numbers[key] for key in chosen):12d}{sum(sizes[key] for key in chosen) / 1024:10.1f}"
        lines.append(f"  {'all':<10}{what:<28}{cells}")
    return [*lines, f"  {'status writes':<38}" + "".join(f"{side.writes[phase]:22d}" for side in sides)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program. Return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.costs", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--beside", type=Path, action="append", default=[], help="another checkout to compare with")
    parser.add_argument("--pods", type=int, default=30, help="of a burst, and idle (default 30)")
    parser.add_argument("--rounds", type=int, default=3, help="bursts of each side (default 3)")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds of the idle phase, 0 = none (default 60)")
    parser.add_argument("--bus", action="store_true", help="count the bus; the CPU then includes the counting")
    parser.add_argument("--perf", type=Path, help="folder for recordings of perf")
    parser.add_argument("--profile", type=Path, help="folder for the statistics of cProfile, one file a process")
    given = parser.parse_args(arguments)
    given.beside = [path.resolve() for path in given.beside]
    sides = asyncio.run(measure(given))
    lines = []
    if given.rounds:
        a_pod = [1000 / (given.rounds * given.pods) for _ in sides]
        lines += cpu_table(sides, "burst", "ms a pod", a_pod) + cpu_table(sides, "removal", "ms a pod", a_pod)
    if given.idle:
        lines += cpu_table(sides, "idle", "s a minute", [60 / side.seconds["idle"] for side in sides])
    for phase in sides[0].bus:
        lines += bus_table(sides, phase)
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
