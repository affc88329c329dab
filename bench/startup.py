"""Measures how long a start takes: from the exec of `kubelet` to the first beat of the last of the seven services.

`python -m bench.startup [RUNS]`, without a cluster, on an otherwise idle machine; prints each run and the median, in
seconds, and beside it the CPU seconds of all its processes, which a busy machine changes little.
"""

import argparse
import asyncio
import os
import statistics
import time
from pathlib import Path

from bus.manifest import new_manifest
from bus.messages.streams import SERVICES
from bus.process_bus import ProcessBus
from tests.process.kubelet_process import Kubelet
from tests.support.waits.deadline import WAIT_SECONDS

RUNS = 5


async def seconds_until_all_beat(kubelet: Kubelet) -> tuple[float, float]:
    """Start the agent once, and stop it. Return the seconds from exec to the first beat of the last service, and the
    CPU seconds."""
    first_beats: dict[str, float] = {}
    complete = asyncio.Event()
    bus = ProcessBus("test", new_manifest(kubelet.run_dir))

    def listen(service: str, sent_at: float) -> None:
        if sent_at >= began:
            first_beats.setdefault(service, time.monotonic())
        if set(first_beats) == set(SERVICES):
            complete.set()

    bus.on_beat(lambda beat: listen(beat.service, beat.sent_at))
    await bus.start()
    try:
        began = time.monotonic()
        kubelet.start()
        async with asyncio.timeout(WAIT_SECONDS):
            await complete.wait()
        return max(first_beats.values()) - began, cpu_seconds(kubelet)
    finally:
        await bus.stop()
        await asyncio.to_thread(kubelet.end)


def cpu_seconds(kubelet: Kubelet) -> float:
    """Return the CPU seconds of the executable, the services and their ended children."""
    pids = [kubelet.process.pid, *kubelet.holders().values()]
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15] for pid in pids]
    return sum(int(ticks) for four in fields for ticks in four) / os.sysconf("SC_CLK_TCK")


async def measure(runs: int) -> list[tuple[float, float]]:
    """Return the seconds and CPU seconds of this many warm starts. A start before them warms the caches and makes the
    certificate."""
    with Kubelet() as kubelet:
        kubelet.run_dir.mkdir(mode=0o700)
        (kubelet.run_dir / "bus").mkdir(mode=0o700)
        return [await seconds_until_all_beat(kubelet) for _ in range(runs + 1)][1:]


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m bench.startup", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("runs", type=int, nargs="?", default=RUNS, metavar="RUNS", help="default: %(default)s")
    taken = asyncio.run(measure(parser.parse_args().runs))
    for name, figures in (("start", [wall for wall, _ in taken]), ("CPU", [cpu for _, cpu in taken])):
        print(
            f"{name:6}", " ".join(f"{seconds:.2f}" for seconds in figures), f"median {statistics.median(figures):.2f} s"
        )


if __name__ == "__main__":
    main()
