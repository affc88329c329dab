"""Does one step of the plan of tests/vm/inside: `prepare PHASE`, `check PHASE CHECK` or `leave PHASE`. What failed is
on standard error.

The memory of the checks is a file, which outlives a boot.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.vm.inside import checks_restarts as restarts
from tests.vm.inside import node
from tests.vm.inside.plan import PHASES, call, sentence

STATE = Path("/var/lib/machine-checks.json")


def save(state: dict[str, Any]) -> None:
    """Write the memory of the checks so that it outlives a power cut."""
    with STATE.open("w") as file:
        file.write(json.dumps(state))
        file.flush()
        os.fsync(file.fileno())


def main(step: str, name: str, *checks: str) -> None:
    """Do the step. An exception is why it failed."""
    [phase] = (phase for phase in PHASES if phase.name == name)
    state: dict[str, Any] = json.loads(STATE.read_text()) if STATE.exists() else {}
    if step == "prepare":
        phase.prepare()
    elif step == "check":
        for check in phase.checks:
            if sentence(check) in checks:
                call(check, state)
    else:
        restarts.remember(state)
        save(state)
        phase.before_leaving()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except AssertionError as error:
        print(error, file=sys.stderr)
        print(node.journal()[-3000:], file=sys.stderr)
        sys.exit(1)
