"""How late probes come when there are many, and what they cost: a real agent, real containers, every kind of handler.

`python -m tests.load.probe_load --minutes 5`. Seen from the containers: every target notes each connection (a command
notes itself), so that what is measured is what a probed program would notice.
"""

import argparse
import asyncio
import itertools
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shared.model.objects import Object
from shared.model.runtime import ContainerState
from tests.support.agents.world import World
from tests.support.runtime.probe_target import TARGET_IMAGE, target_image

HANDLERS = ("httpGet", "tcpSocket", "grpc")
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Lateness:
    """Of one kind of handler: seconds by which tries came later than a period after the one before."""

    tries: int = 0
    late: list[float] = field(default_factory=list)

    @property
    def worst(self) -> float:
        """Of all; 0 where there was none."""
        return max(self.late, default=0.0)

    def share(self, quantile: float) -> float:
        """The lateness that this share of the tries did not exceed."""
        ranked = sorted(self.late)
        return ranked[min(len(ranked) - 1, int(len(ranked) * quantile))] if ranked else 0.0


@dataclass
class Load:
    """What one run found. `cpu`: seconds by process."""

    seconds: float
    by_handler: dict[str, Lateness]
    cpu: dict[str, float]
    restarted: list[str]

    @property
    def worst(self) -> float:
        """Seconds, over all handlers."""
        return max(lateness.worst for lateness in self.by_handler.values())

    def table(self) -> str:
        """For people."""
        lines = [f"{'handler':<10} {'tries':>7} {'late p50':>9} {'p99':>7} {'worst':>7}  (seconds after one period)"]
        for handler, late in self.by_handler.items():
            lines.append(
                f"{handler:<10} {late.tries:>7} {late.share(0.5):>9.3f} {late.share(0.99):>7.3f} {late.worst:>7.3f}"
            )
        for name, spent in self.cpu.items():
            lines.append(f"{name:<10} {spent:7.2f} s of CPU, {100 * spent / self.seconds:.1f} % of one core")
        tries = sum(late.tries for late in self.by_handler.values())
        lines.append(
            f"pleg: {1000 * self.cpu['pleg'] / max(tries, 1):.2f} ms a try; restarts: {self.restarted or 'none'}"
        )
        return "\n".join(lines)


async def measure(
    seconds: float, pods: int, per_pod: int, execs: int, handlers: Sequence[str] = HANDLERS, period: int = 1
) -> Load:
    """Put `pods` pods of `per_pod` containers up, one probe each and all kinds among them, and watch for `seconds`."""
    async with World() as world:
        await world.import_images((target_image(),))
        stamps = world.home.path / "stamps"
        stamps.mkdir()
        kinds: dict[str, str] = {}
        for number in range(pods):
            world.put_manifest(f"p{number}", _pod(number, per_pod, execs, handlers, period, stamps, kinds))
        await world.wait_for(lambda: len(_counts(stamps)) == len(kinds), lambda: _missing(stamps, kinds), 600)
        await asyncio.sleep(5)  # what began late is to have settled
        cpu, marks, began = _cpu(world), _counts(stamps), time.monotonic()
        await asyncio.sleep(seconds)
        took, after = time.monotonic() - began, _cpu(world)
        by_handler = {handler: Lateness() for handler in dict.fromkeys(kinds.values())}
        for name, mark in marks.items():
            moments = _moments(stamps / name)[max(0, mark - 1) :]
            lateness = by_handler[kinds[name]]
            lateness.tries += len(moments) - 1
            lateness.late += [b - a - period for a, b in itertools.pairwise(moments)]
            lateness.late.append(time.monotonic() - moments[-1] - period)
        restarted = [
            f"{pod.name}/{c.name}"
            for pod in (await world.runtime.observe()).values()
            for c in pod.containers
            if c.attempt or c.state is not ContainerState.RUNNING
        ]
        return Load(took, by_handler, {name: after[name] - cpu[name] for name in cpu}, restarted)


def _pod(
    number: int, per_pod: int, execs: int, handlers: Sequence[str], period: int, stamps: Path, kinds: dict[str, str]
) -> Object:
    containers = []
    for place in range(per_pod):
        index, name = number * per_pod + place, f"{number}-{place}"
        handler = "exec" if index < execs else handlers[index % len(handlers)]
        kinds[name] = handler
        action: Object = {"port": 8000 + place}
        command = ["/bin/probe-target", str(8000 + place), f"/stamps/{name}"]
        if handler == "exec":
            action = {"command": ["sh", "-c", f"read up _ < /proc/uptime; echo $up s >> /stamps/{name}"]}
            command = ["sleep", "1000000"]
        probe = {handler: action, "periodSeconds": period}
        turn = index // len(handlers) % 3
        probes = {"readinessProbe": probe} if turn == 0 else {"livenessProbe": probe}
        if turn == 2:
            probes["startupProbe"] = probe
        containers.append(
            {
                "name": f"c{place}",
                "image": TARGET_IMAGE,
                "imagePullPolicy": "Never",
                "command": command,
                "volumeMounts": [{"name": "stamps", "mountPath": "/stamps"}],
                **probes,
            }
        )
    spec = {
        "terminationGracePeriodSeconds": 0,
        "containers": containers,
        "volumes": [{"name": "stamps", "hostPath": {"path": str(stamps)}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}", "namespace": "default"}, "spec": spec}


def _counts(stamps: Path) -> dict[str, int]:
    return {file.name: len(file.read_bytes().splitlines()) for file in stamps.iterdir() if file.stat().st_size}


def _missing(stamps: Path, kinds: dict[str, str]) -> str:
    return f"every container to be probed, {len(kinds) - len(_counts(stamps))} of {len(kinds)} are not"


def _moments(file: Path) -> list[float]:
    """CLOCK_MONOTONIC seconds; the machine was never suspended, so uptime is the same."""
    return [float(line[:-2]) if line.endswith(" s") else int(line) / 1000 for line in file.read_text().splitlines()]


def _cpu(world: World) -> dict[str, float]:
    names = ("pleg", "podsync", "containerd")
    return {name: _spent(world.pid_of(name)) for name in names}


def _spent(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.probe_load", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--pods", type=int, default=50)
    parser.add_argument("--per-pod", type=int, default=3)
    parser.add_argument("--execs", type=int, default=5)
    parser.add_argument("--handler", choices=HANDLERS, action="append", help="only this one beside the commands")
    parser.add_argument("--period", type=int, default=1)
    given = parser.parse_args()
    handlers = tuple(given.handler or HANDLERS)
    load = asyncio.run(measure(given.minutes * 60, given.pods, given.per_pod, given.execs, handlers, given.period))
    print(load.table())
    raise SystemExit(load.worst > given.period or bool(load.restarted))


if __name__ == "__main__":
    main()
