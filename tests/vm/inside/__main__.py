"""Started at every boot of the VM: goes on with the plan where the boot before left it, one line per check on ttyS1."""

import json
import os
import subprocess
import termios
import time
import traceback
import tty
from pathlib import Path
from typing import Any

from tests.vm.inside import checks_restarts as restarts
from tests.vm.inside import node
from tests.vm.inside.plan import PHASES, Phase, call, sentence

STATE = Path("/var/lib/vm-checks.json")


class Report:
    """The second serial port."""

    def __init__(self) -> None:
        self._port = os.open("/dev/ttyS1", os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self._port)

    def send(self, **fields: Any) -> None:
        """One line, which has left the machine when this returns."""
        os.write(self._port, json.dumps(fields).encode() + b"\n")
        termios.tcdrain(self._port)


def save(state: dict[str, Any]) -> None:
    """Bring it to the disk."""
    with STATE.open("w") as file:
        file.write(json.dumps(state))
        file.flush()
        os.fsync(file.fileno())


def check_all(phase: Phase, state: dict[str, Any], report: Report) -> None:
    """Run each check of the phase and send its result. Raises nothing: an exception is that check's reason."""
    gate = ""
    for check in phase.checks:
        began, reason = time.monotonic(), gate
        if not gate:
            try:
                call(check, state)
            except Exception as error:
                message = str(error) if isinstance(error, AssertionError) else ""
                reason = message or "".join(traceback.format_exception(error))[-1500:]
        report.send(phase=phase.name, check=sentence(check), reason=reason, seconds=round(time.monotonic() - began, 1))
        if reason and check is phase.checks[0]:
            gate = f"not tried, for it is not true that {sentence(check)}"
        if reason and not gate:
            print(f"{sentence(check)}: {reason}\n{node.journal()[-3000:]}")


def main() -> None:
    """Until the machine goes down, or the plan ends."""
    report = Report()
    state: dict[str, Any] = json.loads(STATE.read_text()) if STATE.exists() else {"phase": 0}
    report.send(booted=time.clock_gettime(time.CLOCK_BOOTTIME), phase=PHASES[state["phase"]].name)
    while True:
        phase = PHASES[state["phase"]]
        try:
            phase.prepare()
        except Exception:
            print(subprocess.run(["journalctl", "-b", "-n", "80"], capture_output=True, text=True, check=False).stdout)
            report.send(broken=f"preparing {phase.name!r}: {traceback.format_exc()[-2000:]}")
            return
        check_all(phase, state, report)
        state["phase"] += 1
        if phase.leave == "end":
            report.send(end=True)
            return
        if phase.leave == "on":
            continue
        try:
            restarts.remember(state)
        except Exception:
            report.send(broken=f"before leaving {phase.name!r}: {traceback.format_exc()[-2000:]}")
            return
        save(state)
        phase.before_leaving()
        report.send(leave=phase.leave)
        if phase.leave == "reboot":
            node.run("systemctl", "reboot")
        return


if __name__ == "__main__":
    main()
