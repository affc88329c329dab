"""Compares the measured coverage of each package with `tools/coverage.toml`: it must not fall.

`python -m tools.coverage_ratchet [coverage.json] [--write]`. Without a report of `coverage json` it first runs all
tests that need no root under coverage, with child processes: 20 minutes. Counts lines and branches together, in
percent. With exit code 1 it names the packages that fell."""

import argparse
import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMMITTED = Path(__file__).with_name("coverage.toml")
_NO_STARTUP = "--ignore=tests/process/test_kubelet_startup.py"
SLACK_PERCENT = 0.3  # random examples and timing reach a few lines more or fewer
_HEAD = "# Percent of lines and branches that tests reach, by package: tools/coverage_ratchet.py. May only rise.\n"


def by_package(report: Mapping[str, Any]) -> dict[str, float]:
    """Return percent by package (`services/podsync`, `shared/config`, `bus`), from a report of `coverage json`."""
    counts: dict[str, list[int]] = {}
    for file, entry in report["files"].items():
        parts = Path(file).parts[:-1]
        found, summary = counts.setdefault("/".join(parts[:2]), [0, 0]), entry["summary"]
        found[0] += summary["covered_lines"] + summary.get("covered_branches", 0)
        found[1] += summary["num_statements"] + summary.get("num_branches", 0)
    return {name: 100.0 * covered / total for name, (covered, total) in sorted(counts.items()) if total}


def fallen(measured: Mapping[str, float], committed: Mapping[str, float]) -> list[str]:
    """Return a line for each package whose coverage fell; a removed package does not count."""
    return [
        f"{name}: {measured[name]:.1f} %, committed are {percent:.1f} %"
        for name, percent in sorted(committed.items())
        if name in measured and measured[name] < percent - SLACK_PERCENT
    ]


def raised(measured: Mapping[str, float], committed: Mapping[str, float]) -> dict[str, float]:
    """Return the figures to commit: of each package the higher one, in tenths of a percent, rounded down."""
    return {name: max(int(percent * 10) / 10, committed.get(name, 0.0)) for name, percent in sorted(measured.items())}


def measure() -> Path:
    """Run the tests under coverage, and return the report. Raises CalledProcessError where a test fails."""
    report = Path("build/coverage.json")
    report.parent.mkdir(exist_ok=True)
    for old in Path().glob(".coverage*"):
        old.unlink()
    rcfile = f"--rcfile={COMMITTED.with_suffix('.rc')}"
    for words in (
        ["run", rcfile, "-m", "pytest", "tests/unit", "tests/service", "tests/simulation", "-m", "not root"],
        # Tests of what a start costs run without coverage.
        ["run", rcfile, "-m", "pytest", "tests/process", "-m", "not root", _NO_STARTUP],
        ["combine", "-q", rcfile],
        ["json", "-q", rcfile, "-o", str(report)],
    ):
        subprocess.run([sys.executable, "-m", "coverage", *words], check=True)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.coverage_ratchet", description=__doc__)
    parser.add_argument("report", type=Path, nargs="?", help="what `coverage json` wrote; without it, tests run first")
    parser.add_argument("--write", action="store_true", help="write the higher figures")
    given = parser.parse_args()
    measured = by_package(json.loads((given.report or measure()).read_text()))
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
