"""Compares the measured coverage of each package with `tools/coverage.toml`: it may only rise.

`python -m tools.coverage_ratchet coverage.json [--write]`, after `coverage json`; `make coverage` does all of it.
Counts lines and branches together, in percent. Exit code 1 names the packages that fell.
"""

import argparse
import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMMITTED = Path(__file__).with_name("coverage.toml")
SLACK_PERCENT = 0.3  # random examples and timing reach a few lines more or fewer
_HEAD = "# Percent of lines and branches that tests reach, by package: tools/coverage_ratchet.py. May only rise.\n"


def by_package(report: Mapping[str, Any]) -> dict[str, float]:
    """Package (`services/podsync`, `shared/config`, `bus`) -> percent, of a report of `coverage json`."""
    counts: dict[str, list[int]] = {}
    for file, entry in report["files"].items():
        parts = Path(file).parts[:-1]
        found, summary = counts.setdefault("/".join(parts[:2]), [0, 0]), entry["summary"]
        found[0] += summary["covered_lines"] + summary.get("covered_branches", 0)
        found[1] += summary["num_statements"] + summary.get("num_branches", 0)
    return {name: 100.0 * covered / total for name, (covered, total) in sorted(counts.items()) if total}


def fallen(measured: Mapping[str, float], committed: Mapping[str, float]) -> list[str]:
    """One line for each package that has less than was committed; a package that is gone is none."""
    return [
        f"{name}: {measured[name]:.1f} %, committed are {percent:.1f} %"
        for name, percent in sorted(committed.items())
        if name in measured and measured[name] < percent - SLACK_PERCENT
    ]


def raised(measured: Mapping[str, float], committed: Mapping[str, float]) -> dict[str, float]:
    """What to commit: of each package that there is the higher one, in tenths of a percent rounded down."""
    return {name: max(int(percent * 10) / 10, committed.get(name, 0.0)) for name, percent in sorted(measured.items())}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.coverage_ratchet", description=__doc__)
    parser.add_argument("report", type=Path, help="what `coverage json` wrote")
    parser.add_argument("--write", action="store_true", help="write the higher figures")
    given = parser.parse_args()
    measured = by_package(json.loads(given.report.read_text()))
    committed = tomllib.loads(COMMITTED.read_text())["percent"] if COMMITTED.exists() else {}
    for name, percent in measured.items():
        print(f"{percent:6.1f} % {name}")
    lines = fallen(measured, committed)
    print("\n".join(lines))
    if given.write:
        rows = "".join(f'"{name}" = {percent}\n' for name, percent in raised(measured, committed).items())
        COMMITTED.write_text(f"{_HEAD}[percent]\n{rows}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
