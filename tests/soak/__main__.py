"""`python -m tests.soak [--minutes 120] [--seed S]`: exit code 1 when it finds a leak or an error."""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.plan import plan_round, victims_of
from tests.soak.plant import KINDS, Plant
from tests.soak.run import Soak
from tests.soak.schedule import WARM_UP, Schedule, schedule_of


def main() -> int:
    """Soak, or only print the plan; 0 when nothing was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description="Churn on a real node, then look for leaks."
    )
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=None, help="of the operations; by default the time")
    parser.add_argument("--plant", choices=KINDS, help="leak this on purpose")
    parser.add_argument("--out", type=Path, help="write samples and findings there, as JSON")
    parser.add_argument("--plan", action="store_true", help="print the operations and do nothing")
    given = parser.parse_args()
    seed, schedule = int(time.time()) % 1_000_000 if given.seed is None else given.seed, schedule_of(given.minutes)
    if given.plan:
        print_plan(seed, schedule)
        return 0
    with tempfile.TemporaryDirectory(prefix="sk", dir="/tmp") as directory:
        plant = Plant(given.plant) if given.plant else None
        soak = Soak(Path(directory), seed, schedule, lambda line: print(f"{stamp()} {line}", flush=True), plant)
        fine = asyncio.run(soak.run())
    if given.out is not None:
        soak.store(given.out)
    print(
        f"soak of {given.minutes:g} minutes, seed {seed}: "
        + ("nothing was left" if fine else f"{len(soak.findings)} findings")
    )
    return 0 if fine else 1


def stamp() -> str:
    """The time of day."""
    return time.strftime("%H:%M:%S")


def print_plan(seed: int, schedule: Schedule) -> None:
    """Every operation of every round."""
    for number in range(schedule.rounds + 1):
        victims = victims_of(seed, number, schedule.rounds)
        seconds = schedule.seconds if number else WARM_UP
        print(f"round {number}, may be killed: {', '.join(victims) or 'none'}")
        for operation in plan_round(seed, number, seconds, victims).operations:
            print(f"  {operation}")


if __name__ == "__main__":
    sys.exit(main())
