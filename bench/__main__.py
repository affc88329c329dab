"""`python -m bench`: measure, print the table, store JSON, Markdown and charts. Exit code 1 when a sample is missing.

A missed goal is shown and is no failure: the benchmark measures, people decide.
"""

import argparse
import asyncio
import dataclasses
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from bench.agents import BULKHEAD, GO, go_version
from bench.figure import QUICK, Plan, Scenario
from bench.report import markdown, outcome, table
from bench.results import document, problems
from bench.run import measure
from bench.table import SCENARIOS, figures
from shared.errors import OperatorError
from shared.kube.interface import ApiError

RESULTS = Path("bench-results")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure as the arguments request; return the exit code."""
    given = _parser().parse_args(arguments)
    if os.geteuid() != 0:
        return _refuse("measuring kubelets needs root (sudo make bench)")
    scenarios, wrong = _chosen(given.only)
    if wrong:
        return _refuse(f"no scenario {wrong}; there are {', '.join(one.name for one in SCENARIOS)}")
    folder = _assets()
    if folder is None:
        return _refuse("no control plane here (make assets, or set KUBEBUILDER_ASSETS to a folder as envtest has)")
    go = go_version(folder)
    if GO in given.agents and not go:
        return _refuse(f"no kubelet in {folder} (set KUBEBUILDER_ASSETS, or measure one agent: --agents {BULKHEAD})")
    plan = _plan(given)
    facts = _facts(go)
    if os.getloadavg()[0] > (os.cpu_count() or 1):
        print(f"bench: this machine is busy (load {_load()}): the figures will be rough", file=sys.stderr)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets background processes ignore SIGINT
    # A SIGTERM becomes SIGINT, on which asyncio ends all tasks.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        run = asyncio.run(measure(folder, plan, given.agents, scenarios))
    # An AssertionError means that a program did not get ready.
    except (OperatorError, ApiError, AssertionError) as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return _refuse("stopped; what was started has been taken away, nothing was stored")
    facts["load at the end"] = _load()
    wanted = tuple(one for one in scenarios if plan.large or not one.large)
    found = document(run, figures(wanted).values(), facts)
    place = given.results / (given.name or time.strftime("%Y%m%d-%H%M%S"))
    place.mkdir(parents=True, exist_ok=True)
    (place / "results.json").write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    (place / "results.md").write_text(markdown(found))
    from bench.plots import write_plots  # imported late: the agents that are measured do not wait for it

    write_plots(found, place)
    print(f"\n{table(found)}\n\n{outcome(found)}; stored in {place}")
    failed = problems(found)
    for line in failed:
        print(f"bench: {line}", file=sys.stderr)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="The Go kubelet and Bulkhead, side by side.")
    parser.add_argument("--quick", action="store_true", help="fewer samples, one round: a few minutes")
    parser.add_argument("--large", action="store_true", help="also 100 pods at once, idle, in memory and at a start")
    parser.add_argument("--rounds", type=int, help="how often the agents alternate (default 2, quick 1)")
    parser.add_argument("--agents", type=_agents, default=(GO, BULKHEAD), help="go,bulkhead or one of them")
    parser.add_argument("--equal-rates", action="store_true", help="the same API rates for both, not their defaults")
    parser.add_argument("--only", default="", help="these scenarios, by name with commas between")
    parser.add_argument("--samples", type=int, help="how many pods one by one, exits, floors, in a round")
    parser.add_argument("--idle", type=float, help="seconds an idle node is measured (default 60, quick 15)")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"folder of all results (default ./{RESULTS})")
    parser.add_argument("--name", default="", help="folder of this run in it (default: date and time)")
    return parser


def _agents(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not names or any(name not in (GO, BULKHEAD) for name in names):
        raise argparse.ArgumentTypeError(f"{text}: go, bulkhead or both with a comma")
    return names


def _chosen(text: str) -> tuple[tuple[Scenario, ...], str]:
    """Return the scenarios with these names, "" = all, and the first name that no scenario has."""
    if not text:
        return SCENARIOS, ""
    names = text.split(",")
    wrong = next((name for name in names if name not in {one.name for one in SCENARIOS}), "")
    return tuple(one for one in SCENARIOS if one.name in names), wrong


def _plan(given: argparse.Namespace) -> Plan:
    plan = QUICK if given.quick else Plan()
    changes: dict[str, Any] = {}
    if given.rounds is not None:
        changes["rounds"] = given.rounds
    if given.large:
        changes["large"] = 100
    if given.equal_rates:
        changes["equal_rates"] = True
    if given.idle is not None:
        changes["idle"] = given.idle
    if given.samples is not None:
        changes |= dict.fromkeys(("one_by_one", "exits", "floor", "probes"), given.samples)
    return dataclasses.replace(plan, **changes)


def _facts(go: str) -> dict[str, Any]:
    containerd = _output_of("containerd", "--version").split()
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        "Go kubelet": go,
        "Bulkhead": f"{version('bulkhead-kubelet')} {_output_of('git', 'rev-parse', '--short', 'HEAD')}".strip(),
        "Python": platform.python_version(),
        "containerd": containerd[2] if len(containerd) > 2 else "",
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "load at the beginning": _load(),
    }


def _load() -> str:
    return " ".join(f"{load:.2f}" for load in os.getloadavg())


def _assets() -> Path | None:
    """Return the folder that KUBEBUILDER_ASSETS or tools/control-plane names."""
    named = os.environ.get("KUBEBUILDER_ASSETS") or _output_of("tools/control-plane", "--existing")
    return Path(named) if named and (Path(named) / "kube-apiserver").exists() else None


def _output_of(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def _refuse(line: str) -> int:
    print(f"bench: {line}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
