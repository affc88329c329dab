"""Runs the loop of a takeover and of a give-back: observes, chooses the next step, saves it and does it; rolls back
what fails.

`Node` is what the loop acts on: systemd and the kubelets of this machine, or a simulated node."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

from services.cli.takeover.plan import Intent, Observed, Step, may_precede_reload, next_step, steps_of
from services.cli.takeover.record import Record
from shared.errors import OperatorError
from shared.model.frozen_copy import replace
from shared.process.crash import crash_point

Write = Callable[[str], None]
DONE, REFUSED, ROLLED_BACK, INCOMPLETE, INTERRUPTED = 0, 1, 3, 4, 130  # exit codes

MIN_WAIT_SECONDS = 120.0  # for the unit's own kubelet in a roll-back, and for an earlier kubelet to end
MAX_RELOADS = 3  # in one direction: some units show NeedDaemonReload= after each reload


class Node(Protocol):
    """What the loop observes and changes. Every method may raise OSError or OperatorError."""

    def observe(self, record: Record, *, restarted: bool) -> Observed:
        """Return the node at this moment, with the intent of the record."""

    def save(self, record: Record) -> None:
        """Save the record durably."""

    def forget(self) -> None:
        """Remove the record."""

    def write(self, record: Record) -> None:
        """Write the drop-in, atomically."""

    def remove(self) -> None:
        """Remove the drop-in."""

    def reload(self) -> None:
        """Let systemd read its files again."""

    def restart(self) -> None:
        """Request a restart of the unit."""

    def now(self) -> float:
        """Return the seconds of CLOCK_MONOTONIC."""

    def wait(self) -> None:
        """Wait until another observation is worthwhile."""

    def describe(self, step: Step) -> str:
        """Return the step with the names of this node."""

    def evidence(self, record: Record) -> Sequence[str]:
        """Return what shows why the wanted kubelet is not ready, one line each. Raises nothing."""

    def ignore_interrupts(self) -> None:
        """Ignore Ctrl-C in this process from now on."""


class Outcome(Struct, frozen=True, kw_only=True):
    """How an operation ended. `line`: for the operator; `seconds`: from the restart to the end, None = no restart."""

    code: int
    line: str
    seconds: float | None = None


class Operation:
    """One command on one node. `timeout`: seconds that a kubelet has after its restart."""

    def __init__(self, node: Node, record: Record, timeout: float, out: Write) -> None:
        self._node, self._record, self._timeout, self._out = node, record, timeout, out
        self._began: float | None = None  # the time of the newest restart
        self._has_restarted = False  # systemd has taken a request to restart the unit
        self._was_done = record.done  # an earlier command completed the takeover

    def take_over(self) -> Outcome:
        """Carry out the takeover, or the rest of it; roll back where it fails. A takeover that an earlier command
        completed is not rolled back: what the node lacks, such as its API server, no roll-back would bring.

        A Bulkhead of an earlier, killed command that is not ready is started again: it has the variables and flags of
        that time, and its services may still back off from a fault that was corrected since."""
        try:
            reason = self._reach(Intent.TAKEOVER)
            if not reason:
                self._node.ignore_interrupts()
                self._save(replace(self._record, done=True))
                return Outcome(code=DONE, line="", seconds=self._seconds())
            code = ROLLED_BACK
        except KeyboardInterrupt:
            reason, code = "interrupted", INTERRUPTED
        except (OSError, OperatorError) as error:
            reason, code = str(error), ROLLED_BACK
        if self._was_done:
            return self._stay(reason, REFUSED if code == ROLLED_BACK else code)
        return self.roll_back(reason, code)

    def roll_back(self, reason: str, code: int = ROLLED_BACK) -> Outcome:
        """Return to the unit's own kubelet, also where nothing can be saved."""
        self._node.ignore_interrupts()
        self._record = replace(self._record, reason=self._record.reason or reason)
        stopped = self._has_restarted  # by the takeover: systemd may start it again without another restart
        try:
            failed = self._reach(Intent.ROLL_BACK)
            if not failed:
                self._node.forget()
        except (OSError, OperatorError) as error:
            failed = str(error)
        if failed:
            line = f"{reason}; the roll-back is not complete: {failed} (bulkhead give-back completes it)"
            return Outcome(code=INCOMPLETE, line=line, seconds=self._seconds())
        if not stopped and self._began is None and code == ROLLED_BACK:
            code = REFUSED  # the unit's own kubelet was never stopped
        return Outcome(code=code, line=reason, seconds=self._seconds())

    def give_back(self) -> Outcome:
        """Return to the unit's own kubelet at the operator's request."""
        try:
            failed = self._reach(Intent.GIVE_BACK)
            if not failed:
                self._node.forget()
        except KeyboardInterrupt:
            return Outcome(code=INTERRUPTED, line="interrupted (bulkhead give-back continues)")
        except (OSError, OperatorError) as error:
            failed = str(error)
        if failed:
            return Outcome(code=INCOMPLETE, line=failed, seconds=self._seconds())
        return Outcome(code=DONE, line="", seconds=self._seconds())

    def _stay(self, reason: str, code: int) -> Outcome:
        """Leave a completed takeover as it is."""
        with suppress(OSError, OperatorError):
            self._save(replace(self._record, done=True))
        line = f"{reason}; it was taken over before and is not rolled back (bulkhead give-back returns to the kubelet)"
        return Outcome(code=code, line=line, seconds=self._seconds())

    def _reach(self, intent: Intent) -> str:
        """Do the steps until the intent is reached. Return "", or why it is not."""
        node, restarted = self._node, False
        self._began = None
        timeout = max(self._timeout, MIN_WAIT_SECONDS) if intent is Intent.ROLL_BACK else self._timeout
        deadline = node.now() + timeout
        self._record = replace(self._record, intent=intent, done=False)
        acts: dict[Step, Callable[[], None]] = {
            Step.WRITE: lambda: node.write(self._record),
            Step.REMOVE: node.remove,
            Step.RELOAD: node.reload,
            Step.RESTART: node.restart,
            Step.WAIT: node.wait,
        }
        starts_again = intent is Intent.TAKEOVER and not self._was_done
        shown: Step | None = None
        reloads = 0
        reload_due = may_precede_reload(self._record.step)
        while True:
            seen = node.observe(self._record, restarted=restarted)
            if reloads >= MAX_RELOADS:
                seen = replace(seen, reload_needed=False)  # what counts is what systemd has loaded
            if seen.ending and self._began is not None:  # the time of the wanted kubelet has not begun
                deadline = max(deadline, min(node.now(), self._began + MIN_WAIT_SECONDS) + timeout)
            late = node.now() >= deadline
            step = next_step(intent, seen, late=late, starts_again=starts_again, reload_due=reload_due)
            if step is Step.DONE:
                return ""
            if step is Step.OVERRIDDEN:
                return "systemd would not start the program that the drop-in names or leaves (systemctl cat shows why)"
            if step is Step.LATE:
                missing = seen.missing or ("the kubelet does not run",)
                return f"not within {timeout:.0f} s: {'; '.join([*missing, *node.evidence(self._record)])}"
            if step is not shown:
                self._save(replace(self._record, step=step))
                self._show(intent, step)
                shown = step
            if step is Step.RESTART:
                self._began = node.now()
                deadline, restarted = self._began + timeout, True
            reloads += step is Step.RELOAD
            crash_point(f"takeover.saved.{step.name}")
            acts[step]()
            self._has_restarted = self._has_restarted or step is Step.RESTART
            reload_due = step in (Step.WRITE, Step.REMOVE) or (reload_due and step is not Step.RELOAD)
            crash_point(f"takeover.acted.{step.name}")

    def _save(self, record: Record) -> None:
        """Save the record. A roll-back continues where that fails, because the disk may be the reason for it."""
        try:
            self._node.save(record)
        except OSError:
            if record.intent is Intent.TAKEOVER:
                raise
        self._record = record

    def _show(self, intent: Intent, step: Step) -> None:
        steps = steps_of(intent)
        self._out(f"{intent} {steps.index(step) + 1}/{len(steps)}: {self._node.describe(step)}")

    def _seconds(self) -> float | None:
        return None if self._began is None else self._node.now() - self._began
