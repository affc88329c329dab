"""Hostile servers behind probes and hooks, and hostile YAML: no stall of the event loop above 100 ms, no growth above
32 MiB, and no error but those that the callers expect.

Each runs in a process of its own: 5 s in `make test`, ten minutes with a new seed in `make night`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waits.deadline import WAIT_SECONDS

ROOT = Path(__file__).parents[2]
SEED = os.environ.get("FIRST_SEED", "1")  # make night sets another one each time
SHORT_SECONDS, LONG_SECONDS = 5, 600


def run(what: str, seconds: int) -> None:
    command = [sys.executable, "-m", "tests.hostile", what, str(seconds), SEED]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=2 * (seconds + WAIT_SECONDS), check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    figures = json.loads(done.stdout)
    assert figures["inputs"] > 2 * seconds, figures


@pytest.mark.parametrize("what", ["probes", "yaml"])
def test_hostile_input_neither_stalls_nor_grows_a_process(what: str) -> None:
    run(what, SHORT_SECONDS)


@pytest.mark.night
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("what", ["probes", "yaml"])
def test_hostile_input_of_ten_minutes_neither_stalls_nor_grows_a_process(what: str) -> None:
    run(what, LONG_SECONDS)
