"""Checks what a takeover or a give-back needs before it changes anything. Each refusal is one line with its remedy."""

import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from services.cli.preflight.findings import Report, Section, Severity, Verdict
from services.cli.preflight.text import finding_line
from services.cli.systemd import control
from services.cli.systemd.command_line import unit_flags
from services.cli.systemd.unit import ServiceUnit
from services.cli.takeover.api_server import node_ready
from services.cli.takeover.containers import running_containers
from services.cli.takeover.node import running_kubelet
from services.cli.takeover.plan import Kubelet
from services.cli.takeover.record import SeenContainer
from services.cli.takeover.unit import UNIT, list_refusals
from services.report.processes import process_of
from shared.config.effective import EffectiveConfig
from shared.config.evaluation import evaluate
from shared.config.findings import ConfigurationRefusedError
from shared.errors import OperatorError
from shared.text.plain_text import plain

_MAX_VERSION_SECONDS = 20.0  # for `kubelet --version`
_MIN_FREE_BYTES = 64 << 20  # that must be free where the agent writes records, logs and compiled modules


class Found(Struct, frozen=True, kw_only=True):
    """What the checks have read. `problems`: the reasons to change nothing, one line each; `notes`: what else to
    know."""

    unit: ServiceUnit
    config: EffectiveConfig | None
    version: str = ""  # the version of the unit's program
    containers: tuple[SeenContainer, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class _Findings:
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def kubelet_unit() -> ServiceUnit:
    """Return the kubelet's unit. Raises OperatorError where this user is not root, or systemd does not run."""
    if os.geteuid() != 0:
        raise OperatorError("needs root", where="exchanging the kubelet", remedy="run it with sudo")
    if not control.is_booted():
        raise OperatorError(
            "does not run this machine", where="systemd", remedy="run it on the node, not in a container"
        )
    return control.read_unit(UNIT)


def configuration(unit: ServiceUnit) -> EffectiveConfig:
    """Return the effective configuration of the unit's flags. Raises OperatorError with the first problem."""
    arguments = unit_flags(unit)
    try:
        return evaluate(arguments).config
    except ConfigurationRefusedError as error:
        lines = str(error).splitlines()
        raise OperatorError(f"Bulkhead refuses the kubelet's configuration: {lines[0]}",
                            remedy="bulkhead config check shows all of it") from error  # fmt: skip


def check_takeover(unit: ServiceUnit, program: str, run_dir: str, directories: tuple[Path, ...], *,
                   needs_api_server: bool) -> Found:  # fmt: skip
    """Read what a takeover depends on. `program`: Bulkhead's kubelet; `directories`: where files will be written."""
    seen = _Findings()
    seen.problems += list_refusals(unit, program, time.time())
    if not os.access(program, os.X_OK):
        seen.problems.append(f"{program} is not there or not executable (install Bulkhead again)")
    if seen.problems:
        return Found(unit=unit, config=None, problems=tuple(seen.problems))
    version = ""
    running = running_kubelet(unit, program)
    if running is not Kubelet.BULKHEAD:
        version = _version(unit.program, seen)
        holder = process_of(run_dir, "bootstrap").holder
        if holder is not None:
            seen.problems.append(
                f"an agent that {UNIT} did not start runs already (process {holder.pid}; systemctl stop bulkhead)"
            )
    for directory in directories:
        _check_space(directory, seen)
    try:
        config = configuration(unit)
    except OperatorError as error:
        seen.problems.append(str(error))
        return Found(unit=unit, config=None, version=version, problems=tuple(seen.problems))
    containers: tuple[SeenContainer, ...] = ()
    try:
        containers = running_containers(config.container_runtime_endpoint)
    except OperatorError as error:
        seen.problems.append(str(error))
    _check_api_server(config, seen, needed=needs_api_server)
    return Found(
        unit=unit,
        config=config,
        version=version,
        containers=containers,
        problems=tuple(seen.problems),
        notes=tuple(seen.notes),
    )


def preflight_problems(report: Report, *, needs_api_server: bool) -> list[str]:
    """Return one line for each problem that `bulkhead preflight` found. Without an API server, the problem that it
    cannot be read does not count."""
    uncounted = () if needs_api_server else (Section.CLUSTER, Section.PODS)
    lines = [
        finding_line(finding)
        for finding in report.findings
        if finding.severity is Severity.PROBLEM and finding.section not in uncounted
    ]
    for pod in report.pods:
        if pod.verdict is Verdict.CANNOT:
            reasons = "; ".join(f"{reason.field}: {reason.consequence}" for reason in pod.reasons)
            lines.append(f"pod {pod.namespace}/{pod.name} cannot run yet: {reasons}")
    return [plain(line) for line in lines]


def _version(program: str, seen: _Findings) -> str:
    """Return what the program prints as its version. A program that cannot be run is a problem."""
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, check=False, timeout=_MAX_VERSION_SECONDS, text=True,
            errors="replace", stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else f"it did not end within {_MAX_VERSION_SECONDS:.0f} s"
        seen.problems.append(f"{program} --version: {reason} (the roll-back needs a kubelet that works)")
        return ""
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines or not lines[0].startswith("Kubernetes "):
        seen.problems.append(f"{program} --version does not print a version of Kubernetes (is it a kubelet?)")
        return ""
    return lines[0][:100]


def _check_space(directory: Path, seen: _Findings) -> None:
    while not directory.exists():
        directory = directory.parent
    try:
        found = os.statvfs(directory)
    except OSError as error:
        seen.problems.append(f"{directory}: {error.strerror}")
        return
    if found.f_flag & os.ST_RDONLY:
        seen.problems.append(f"{directory} is read-only (mount it with rw)")
    elif found.f_bavail * found.f_frsize < _MIN_FREE_BYTES:
        seen.problems.append(f"{directory} has less than {_MIN_FREE_BYTES >> 20} MiB free (free some space)")
    elif found.f_files and not found.f_favail:
        seen.problems.append(f"{directory} has no free inodes (remove files)")


def _check_api_server(config: EffectiveConfig, seen: _Findings, *, needed: bool) -> None:
    if not config.kubeconfig:
        return
    if not needed:
        seen.notes.append("Ready is not waited for in the cluster (--without-api-server)")
        return
    try:
        node = node_ready(config.kubeconfig, config.node_name)
    except OperatorError as error:
        seen.problems.append(f"{error}; Ready could not be seen (repair it, or give --without-api-server)")
        return
    if not node.ready:
        seen.problems.append(
            f"the Node {config.node_name} is not Ready under its own kubelet (kubectl describe node shows why; with "
            "--without-api-server it is not waited for)"
        )
