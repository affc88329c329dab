"""`bulkhead preflight` finds out whether this agent would run the pods of the node, before anything is changed.

The checks run at the same time, each in a thread with a deadline; a check that does not end is a finding. Nothing is
written. `findings`, `pod_verdicts` and `skew` are pure; each other module reads one thing. `bulkhead takeover` calls
`examine`, too."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct, field

from services.cli.preflight.cluster import read_cluster
from services.cli.preflight.configuration import read_configuration
from services.cli.preflight.findings import Finding, PodVerdict, Report, Section, Severity
from services.cli.preflight.machine import disk_findings, machine_findings, port_findings, running_agent
from services.cli.preflight.pod_files import read_named_pods
from services.cli.preflight.pod_network import network_findings
from services.cli.preflight.pod_verdicts import NodeSupport, verdicts
from services.cli.preflight.runtime import runtime_findings
from services.cli.preflight.serving_name import serving_name_findings
from services.cli.preflight.shutdown import shutdown_findings
from shared.agent.places import find_places
from shared.config.effective import EffectiveConfig
from shared.model.objects import Object

T = TypeVar("T")
_EXTRA_SECONDS = 5.0  # that a check may take beyond the time of its own requests
_ORDER = {section: number for number, section in enumerate(Section)}


class Options(Struct, frozen=True, kw_only=True):
    """What to examine. `unit`: the systemd unit; `flags`: those of a kubelet, in place of the unit's; `pods`: a file or
    directory in place of the node's own pods, "-" = standard input; `timeout`: seconds of each check."""

    unit: str = "kubelet.service"
    flags: tuple[str, ...] = ()
    pods: str = ""
    timeout: float = 10.0


def examine(options: Options) -> Report:
    """Examine this node. Changes nothing and raises nothing for what it finds; takes three times `timeout` at most."""
    configuration = _Check(
        "the configuration",
        Section.CONFIGURATION,
        lambda: read_configuration(options.unit, options.flags, options.timeout),
    ).result(options.timeout + _EXTRA_SECONDS)
    resolved = configuration.value.resolved if configuration.value is not None else None
    usable = resolved.config if resolved is not None else None
    machine = _Check("the machine", Section.MACHINE, lambda: machine_findings(usable))
    findings = [*(configuration.value.findings if configuration.value is not None else ()), *configuration.findings]
    checks: list[_Check[list[Finding]]] = [machine]
    pods: tuple[PodVerdict, ...] = ()
    if resolved is None:
        what = "API server, runtime, ports and disk are not checked: the configuration cannot be used"
        findings.append(_finding(Section.CONFIGURATION, Severity.NOTE, what))
        checks.append(_Check("the agent", Section.MACHINE, lambda: running_agent(find_places().run_dir)))
    else:
        config = resolved.config
        checks += [
            _Check("the agent", Section.MACHINE, lambda: running_agent(config.run_dir)),
            _Check("the runtime", Section.RUNTIME, lambda: runtime_findings(config, options.timeout)),
            _Check("the network of the pods", Section.RUNTIME, lambda: network_findings(config)),
            _Check("logind", Section.MACHINE, lambda: shutdown_findings(config, options.timeout)),
            _Check("the serving certificate", Section.CLUSTER, lambda: serving_name_findings(config, time.time())),
            _Check("the ports", Section.PORTS, lambda: port_findings(config)),
            _Check("the disk", Section.DISK, lambda: disk_findings(config)),
        ]
    reading = _Check("the pods", Section.PODS, lambda: _pods(options, usable))
    until = time.monotonic() + 2 * options.timeout + _EXTRA_SECONDS
    for check in checks:
        done = check.result(until - time.monotonic())
        findings += [*(done.value or ()), *done.findings]
    read = reading.result(until - time.monotonic())
    findings += read.findings
    if read.value is not None:
        support = _support(read.value, usable)
        checked = _Check("the fields of the pods", Section.PODS, partial(verdicts, read.value.pods, support))
        done_pods = checked.result(options.timeout + _EXTRA_SECONDS)
        pods = done_pods.value or ()
        findings += done_pods.findings
        findings += read.value.findings
        if read.value.origin:
            what = f"{len(pods)} pods, read from {read.value.origin}"
            findings.append(_finding(Section.PODS, Severity.OK if pods else Severity.NOTE, what))
    findings.sort(key=lambda finding: _ORDER[finding.section])
    return Report(node=resolved.config.node_name if resolved else "", findings=tuple(findings), pods=pods)


class _PodsRead(Struct, frozen=True, kw_only=True):
    """The pods that were read. `node`: the Node, {} = not known."""

    pods: tuple[Object, ...] = ()
    origin: str = ""
    findings: tuple[Finding, ...] = ()
    claims: dict[str, Object] = field(default_factory=dict)


def _pods(options: Options, config: EffectiveConfig | None) -> _PodsRead:
    pods: list[Object] = []
    if options.pods:
        pods, named = read_named_pods(options.pods)
        origin = "standard input" if options.pods == "-" else options.pods
        return _PodsRead(pods=tuple(pods), origin=origin, findings=tuple(named))
    if config is None:
        return _PodsRead()
    found = read_cluster(config, options.timeout)
    return _PodsRead(pods=found.pods, origin=found.origin, findings=found.findings, claims=found.claims)


def _support(read: _PodsRead, config: EffectiveConfig | None) -> NodeSupport:
    if config is None:
        return NodeSupport(claims=read.claims)
    return NodeSupport(claims=read.claims, gates=config.feature_gates, release=config.emulated_version)


class _Done(Struct, Generic[T], frozen=True, kw_only=True):
    """What a check returned; None = it failed or did not end, which is in `findings`."""

    value: T | None
    findings: tuple[Finding, ...] = ()


class _Check(Generic[T]):
    """A check that runs in a thread of its own; one that hangs does not keep the command from ending."""

    def __init__(self, what: str, section: Section, function: Callable[[], T]) -> None:
        self._what, self._section, self._function = what, section, function
        self._value: T | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=what, daemon=True)
        self._thread.start()

    def result(self, timeout: float) -> _Done[T]:
        """Return what the check found within `timeout` seconds."""
        self._thread.join(max(timeout, 0.0))
        if self._thread.is_alive():
            what = f"the check of {self._what} did not end in time"
            return self._failed(what, "is a network file system in its way?")
        if self._error is not None:
            return self._failed(f"the check of {self._what} failed: {type(self._error).__name__}: {self._error}")
        return _Done(value=self._value)

    def _failed(self, what: str, remedy: str = "") -> _Done[T]:
        return _Done(value=None, findings=(_finding(self._section, Severity.PROBLEM, what, remedy),))

    def _run(self) -> None:
        try:
            self._value = self._function()
        except Exception as error:
            self._error = error


def _finding(section: Section, severity: Severity, what: str, remedy: str = "") -> Finding:
    return Finding(section=section, severity=severity, what=what[:500], remedy=remedy)
