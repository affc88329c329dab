"""All of one run: the disks are made, the machine is switched on, cut off and on again, and what it reports is kept.

The machine decides what comes next; here only its word `cut` is obeyed. Has one time limit for everything.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.vm import image
from tests.vm.qemu import KVM, TCG, Machine, accelerator

LIMITS: dict[tuple[str, ...], float] = {KVM: 20 * 60.0, TCG: 100 * 60.0}  # seconds for all of it
BOOTS_WITHIN: dict[tuple[str, ...], float] = {KVM: 120.0, TCG: 600.0}  # from a power-on to the first word
QUIET_FOR: dict[tuple[str, ...], float] = {KVM: 1300.0, TCG: 1800.0}  # between two words: the longest check
POWER_ONS = 4


@dataclass
class Outcome:
    """`checks`: (phase, check) -> why it is not so, "" = it is so. `trouble`: why the run ended early."""

    accelerator: str = ""
    checks: dict[tuple[str, str], str] = field(default_factory=dict)
    trouble: str = ""
    ended: bool = False

    def take(self, result: dict[str, Any]) -> None:
        """One line of the machine's."""
        if "check" in result:
            self.checks[result["phase"], result["check"]] = result["reason"]
            verdict = "not ok" if result["reason"] else "ok"
            first = result["reason"].strip().partition("\n")[0]
            print(
                f"{verdict} {result['phase']}: {result['check']} ({result['seconds']} s) {first}".rstrip(), flush=True
            )
        elif "broken" in result:
            self.trouble = result["broken"]
        elif "booted" in result:
            print(f"# up after {result['booted']:.0f} s of its clock: {result['phase']}", flush=True)
        self.ended = self.ended or "end" in result


def run(directory: Path) -> Outcome:
    """Everything, in `directory`, which keeps the consoles; the disks are removed."""
    base = image.base()
    chosen = accelerator(base)
    outcome = _boot_through(base, chosen, directory / "first")
    if chosen == KVM and not outcome.checks and not outcome.ended:
        print("# no result came under KVM: trying again, emulated", flush=True)
        outcome = _boot_through(base, TCG, directory / "emulated")
    return outcome


def _boot_through(base: image.Image, chosen: tuple[str, ...], directory: Path) -> Outcome:
    directory.mkdir()
    root, checkout = directory / "root.ext4", directory / "checkout.ext4"
    image.copy_of_root(base, root)
    image.checkout_disk(checkout)
    outcome = Outcome(accelerator=chosen[1].partition(",")[0])
    print(f"# qemu with {outcome.accelerator}", flush=True)
    limit = time.monotonic() + LIMITS[chosen]
    try:
        for power_on in range(1, POWER_ONS + 1):
            with Machine(base, chosen, root, checkout, directory / f"power-on-{power_on}") as machine:
                if not _listen(machine, outcome, limit, chosen):
                    return outcome
    finally:
        root.unlink()
        checkout.unlink()
    outcome.trouble = f"the power was cut {POWER_ONS} times and it has not come to its end"
    return outcome


def _listen(machine: Machine, outcome: Outcome, limit: float, chosen: tuple[str, ...]) -> bool:
    """Until the machine is done with this power-on; whether it is to be switched on again."""
    timeout = BOOTS_WITHIN[chosen]
    while True:
        result = machine.next(min(limit, time.monotonic() + timeout))
        if result is None:
            over = time.monotonic() > limit
            outcome.trouble = f"{'the time is over' if over else 'it sent nothing more'}; console:\n{machine.tail()}"
            return False
        outcome.take(result)
        if outcome.trouble or outcome.ended:
            return False
        if result.get("leave") == "cut":
            return True
        timeout = BOOTS_WITHIN[chosen] if result.get("leave") == "reboot" else QUIET_FOR[chosen]
