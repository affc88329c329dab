"""Takes the machine through one phase of the plan: `run PHASE` prepares it and does its checks, `leave PHASE` does what
comes before its end. `run` prints a JSON object for each check: check, reason ("" where it holds), seconds.

The memory of the checks is a file, which outlives a boot. One process does a whole phase: a start of Python takes
seconds.
"""

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tests.machine.inside import checks_restarts as restarts
from tests.machine.inside import node
from tests.machine.inside.plan import PHASES, Check, Phase, call, sentence

STATE = Path("/var/lib/machine-checks.json")


def save(state: dict[str, Any]) -> None:
    """Write the memory of the checks so that it outlives a power cut."""
    with STATE.open("w") as file:
        file.write(json.dumps(state))
        file.flush()
        os.fsync(file.fileno())


def run(phase: Phase, state: dict[str, Any]) -> None:
    """Prepare the phase and print the result of each check. After a first one that failed, none is tried."""
    phase.prepare()
    gate = ""
    for check in phase.checks:
        began = time.monotonic()
        reason = gate or _failure(check, state)
        result = {"check": sentence(check), "reason": reason, "seconds": round(time.monotonic() - began, 1)}
        print(json.dumps(result), flush=True)
        if reason and check is phase.checks[0]:
            gate = f"not tried, for it is not true that {sentence(check)}"


def _failure(check: Check, state: dict[str, Any]) -> str:
    """Why the check failed, with the end of the agent's log; "" where it holds."""
    try:
        call(check, state)
    except AssertionError as error:
        return f"{error}\n{node.journal()[-3000:]}"
    except Exception as error:
        return "".join(traceback.format_exception(error))[-1500:]
    return ""


def main(step: str, name: str) -> None:
    """Do the step. An exception is why the phase cannot go on."""
    [phase] = (phase for phase in PHASES if phase.name == name)
    state: dict[str, Any] = json.loads(STATE.read_text()) if STATE.exists() else {}
    if step == "run":
        run(phase, state)
        return
    restarts.remember(state)
    save(state)
    phase.before_leaving()


if __name__ == "__main__":
    main(*sys.argv[1:])
