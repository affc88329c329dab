"""`python -m tests.chaos`: takes a real cluster through the kill matrix and prints what each cell cost.

`[--points] [--pairs] [--front supervisord|kubelet] [--only GLOB] [--pods 50] [--out DIR] [--list]`. Without `--front`
the whole matrix runs behind supervisord, and behind `kubelet` each process alone. Exits 1 when a cell cost too much.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.chaos import report
from tests.chaos.cells import Cell, Hit, chosen, matrix
from tests.chaos.costs import complaints
from tests.chaos.fronts import FRONTS
from tests.chaos.runner import Runner
from tools.prerequisites import missing_packages


def main() -> int:
    """Run what was asked for; the exit code."""
    given = _arguments()
    plan = list(_plan(given))
    if not plan:
        print(f"chaos: no cell is named {given.only}: see --list, with --points and --pairs for more", file=sys.stderr)
        return 2
    if given.list:
        print("\n".join(f"{front}: {cell.name}" for front, cells in plan for cell in cells))
        return 0
    if why := _lacking():
        print(f"chaos: {why}", file=sys.stderr)
        return 2
    try:
        rows = asyncio.run(_run(plan, given.pods, given.out))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print(f"chaos: broken off; the cells so far are in {given.out}", file=sys.stderr)
        return 130
    print(f"\n{report.summary(rows)}\nwritten: {given.out}/kill-matrix.md and .json")
    return 1 if any(row.complaints for row in rows) else 0


async def _run(plan: list[tuple[str, list[Cell]]], burst: int, out: Path) -> list[report.Row]:
    rows: list[report.Row] = []
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)  # takes everything down again
    began = time.monotonic()
    for front, cells in plan:
        print(report.heading(front), flush=True)
        async with Runner(front, burst) as runner:
            for cell in cells:
                costs = await runner.measure(cell)
                row = report.Row(front, cell, costs, tuple(complaints(cell, costs, runner.limits)))
                rows.append(row)
                print(report.line(row), flush=True)
                _write(rows, out, time.monotonic() - began)
                if row.complaints:
                    (out / f"{front}-{cell.name.replace('/', '-')}.log").write_text(runner.logs)
    return rows


def _write(rows: list[report.Row], out: Path, seconds: float) -> None:
    """After every cell: a run that is broken off leaves what it has."""
    out.mkdir(parents=True, exist_ok=True)
    title = f"Kill matrix: {len(rows)} cells in {seconds / 60:.0f} minutes"
    (out / "kill-matrix.md").write_text(report.markdown(rows, title))
    (out / "kill-matrix.json").write_text(report.as_json(rows))


def _plan(given: argparse.Namespace) -> Iterator[tuple[str, list[Cell]]]:
    for front in [given.front] if given.front else FRONTS:
        brief = not given.front and front != "supervisord"
        cells = matrix(with_points=given.points, with_pairs=given.pairs, brief=brief)
        cells = chosen(cells, given.only) if given.only else cells
        if any(cell.hit is not Hit.NOTHING for cell in cells):
            yield front, cells


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="The kill matrix on a real cluster.")
    parser.add_argument("--points", action="store_true", help="also kill at every named crash point")
    parser.add_argument("--pairs", action="store_true", help="also kill every two services at once (long)")
    parser.add_argument("--front", choices=list(FRONTS), help="only behind this front door, and then all cells")
    parser.add_argument("--only", metavar="GLOB", help="only cells whose name matches: 'podsync/*', '*/kill/idle'")
    parser.add_argument("--pods", type=int, default=50, help="how many start and stop in mid-flight (default 50)")
    parser.add_argument("--out", type=Path, default=Path("build/chaos"), help="where the tables go (build/chaos)")
    parser.add_argument("--list", action="store_true", help="print the names of the cells and end")
    return parser.parse_args()


def _lacking() -> str:
    if os.geteuid() != 0:
        return "needs root: sudo .venv/bin/python -m tests.chaos"
    missing = missing_packages("run", "test")
    return f"missing on this machine: apt-get install {' '.join(missing)}" if missing else ""


if __name__ == "__main__":
    sys.exit(main())
