"""A node with systemd and two kubelets, for the loop of a takeover: files and systemd outlive the command, which is
killed at any call."""

from dataclasses import dataclass, field

from services.cli.takeover.plan import Intent, Kubelet, Observed, Step
from services.cli.takeover.record import Record
from shared.errors import OperatorError
from shared.model.frozen_copy import replace


class KilledError(BaseException):
    """SIGKILL of the command."""


@dataclass
class Machine:
    """What outlives the command. `works`: the kubelets that become ready; `overridden`: a later drop-in names its own
    program; `fault`: a kubelet that is started meanwhile does not become ready, also after the fault is corrected;
    `notices`: systemd answers NeedDaemonReload=yes once the drop-in has changed; without a directory for drop-ins in
    /etc when it loaded the unit, as on a node of kubeadm 1.29 or newer, it answers no; `prepares`: the unit has
    commands before its main process, which take until the next reload; `refuses`: systemd refuses to restart it."""

    record: Record | None = None
    drop_in: tuple[str, ...] | None = None
    loaded: Kubelet = Kubelet.OWN
    running: Kubelet = Kubelet.OWN
    works: set[Kubelet] = field(default_factory=lambda: {Kubelet.OWN, Kubelet.BULKHEAD})
    overridden: bool = False
    full: bool = False  # the disk
    fault: bool = False
    started_with_fault: bool = False
    notices: bool = False
    always_needs_reload: bool = False
    end_seconds: float = 0.0  # of a kubelet that is restarted
    prepares: bool = False
    refuses: bool = False
    starts: list[Kubelet] = field(default_factory=list)

    @property
    def on_disk(self) -> Kubelet:
        """What systemd starts after a reload."""
        return Kubelet.OWN if self.drop_in is None or self.overridden else Kubelet.BULKHEAD

    def start(self) -> None:
        """systemd's restart: the unit has one main process, so the earlier one has ended before."""
        if self.prepares and self.running is not Kubelet.NONE:
            self.running = Kubelet.NONE
            return
        self.running, self.started_with_fault = self.loaded, self.fault
        self.starts.append(self.running)

    def reload(self) -> None:
        """systemd reads the files; a start that is in progress goes on with what they say."""
        self.loaded = self.on_disk
        if self.running is Kubelet.NONE:
            self.start()

    def boot(self) -> None:
        """The machine restarts."""
        self.loaded = self.on_disk
        self.start()


class SimulatedNode:
    """The loop's node. `kill_at`: the number of the call, from 1, at which the command is killed, before it acts or
    (`after`) once it has; `interrupt_at`: the same for Ctrl-C."""

    def __init__(self, machine: Machine, *, kill_at: int = 0, after: bool = False, interrupt_at: int = 0) -> None:
        self.machine, self.kill_at, self.after, self.interrupt_at = machine, kill_at, after, interrupt_at
        self.calls: list[str] = []
        self._now = self._restarted = 0.0
        self._interrupts = True

    def observe(self, record: Record, *, restarted: bool) -> Observed:
        self._call("observe")
        machine = self.machine
        wanted = Kubelet.BULKHEAD if record.intent is Intent.TAKEOVER else Kubelet.OWN
        ending = restarted and self._now < self._restarted + machine.end_seconds
        ready = machine.running is wanted and wanted in machine.works and not ending and not machine.started_with_fault
        seen = Observed(
            drop_in=machine.drop_in is not None,
            current=machine.drop_in == record.words,
            loaded=machine.loaded,
            reload_needed=machine.always_needs_reload or (machine.notices and machine.loaded is not machine.on_disk),
            running=machine.running,
            restarted=restarted,
            missing=() if ready else ("the node is not Ready",),
            ending=ending,
        )
        self._called()
        return seen

    def save(self, record: Record) -> None:
        self._change("save", lambda: self._set(record=record), needs_space=True)

    def forget(self) -> None:
        self._change("forget", lambda: self._set(record=None))

    def write(self, record: Record) -> None:
        self._change("write", lambda: self._set(drop_in=record.words), needs_space=True)

    def remove(self) -> None:
        self._change("remove", lambda: self._set(drop_in=None))

    def reload(self) -> None:
        self._change("reload", self.machine.reload)

    def restart(self) -> None:
        self._restarted = self._now
        if self.machine.refuses:
            self.calls.append("restart")
            raise OperatorError("Access denied", where="kubelet.service")
        self._change("restart", self.machine.start)

    def now(self) -> float:
        return self._now

    def wait(self) -> None:
        self._now += 1.0
        self._change("wait", lambda: None)

    def describe(self, step: Step) -> str:
        return step.value

    def evidence(self, record: Record) -> list[str]:
        return [f"the last line of {record.intent}.log is: E1123 no"]

    def ignore_interrupts(self) -> None:
        self._interrupts = False

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            setattr(self.machine, name, replace(value) if isinstance(value, Record) else value)

    def _change(self, name: str, act: object, *, needs_space: bool = False) -> None:
        self._call(name)
        if needs_space and self.machine.full:
            raise OSError(28, "No space left on device")
        assert callable(act)
        act()
        self._called()

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if len(self.calls) == self.kill_at and not self.after:
            raise KilledError
        if len(self.calls) == self.interrupt_at and self._interrupts:
            raise KeyboardInterrupt

    def _called(self) -> None:
        if len(self.calls) == self.kill_at and self.after:
            raise KilledError
