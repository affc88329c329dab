"""The simulation itself: the same seed is the same story, a broken agent is caught, a failing story is short."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.faults import ClockStep, Kill, RuntimeFault
from tests.simulation.mutants import MUTANTS
from tests.simulation.run import Case, Verdict, check_case, draw
from tests.simulation.seeds import work
from tests.simulation.shrink import kind_of, shrink

ROOT = Path(__file__).resolve().parents[2]
WITHIN = range(12)
SEEDS_OF = {"crowds-cpus": (30, 37)}  # of the broken agents that fewer workloads show
DIGESTS = """
from tests.simulation.run import draw, in_memory, check_case
in_memory("digest")
for seed in (3, 9, 24):
    print(check_case(draw(seed)).digest)
"""


def _digests(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", DIGESTS], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_one_seed_is_one_story_byte_for_byte() -> None:
    first, second = _digests("1"), _digests("3")
    assert len(first.split()) == 3 and len(set(first.split())) == 3
    assert first == second


def test_no_fault_decides_what_a_probe_finds() -> None:
    faults = [fault for seed in (*range(400), 7000) for fault in draw(seed).faults if isinstance(fault, RuntimeFault)]
    probes = [fault.code for fault in faults if fault.method == "ExecSync"]
    assert probes and "DeadlineExceeded" not in probes


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] if name == "unmounts-early" else []) for name in sorted(MUTANTS)],
)
def test_a_broken_agent_is_caught(name: str) -> None:
    assert any(check_case(draw(seed), MUTANTS[name]).violation for seed in SEEDS_OF.get(name, WITHIN)), (
        f"no seed found {name}"
    )


def test_a_failing_seed_gives_a_short_story() -> None:
    case = draw(3)
    calls = 0

    def fails_where_podsync_is_killed(candidate: Case) -> Verdict:
        nonlocal calls
        calls += 1
        bad = any(isinstance(fault, Kill) for fault in candidate.faults)
        return Verdict("pod 17 is lost" if bad else None, {}, (), "", 0.0)

    kill = Kill(1.0, "podsync", 3, 20, "", 1.0)
    case = Case(case.seed, case.workload, (ClockStep(0.5, 30.0), kill, ClockStep(2.0, 30.0), ClockStep(3.0, 30.0)))
    small, verdict = shrink(case, fails_where_podsync_is_killed(case), fails_where_podsync_is_killed)
    assert len(small.faults) == 1 and len(small.workload.pods) == 1
    assert verdict.violation is not None and calls < 150


def test_violations_of_one_kind_are_distinguished_from_others() -> None:
    assert kind_of("attempt 1 of container c0 of pod 00a1 is made") == kind_of(
        "attempt 2 of container c1 of pod 00b2 is made"
    )
    assert kind_of("a phase goes back") != kind_of("attempt 1 is made")


@pytest.mark.long
def test_a_failing_mutant_seed_prints_numbered_lines_and_the_violation() -> None:
    for seed in WITHIN:
        _, text, failed = work(seed, "kills-at-once")
        if failed:
            assert "violated: " in text and "   1  " in text
            return
    pytest.fail("no seed fails")
