"""Examines this machine: rights, systemd, kernel and its settings, cgroups, swap, ports, disk, and an agent that runs.
Only reads."""

import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from services.cli.preflight.findings import Finding, Section, Severity
from services.report.processes import process_of
from shared.agent.places import find_places
from shared.config.effective import EffectiveConfig
from shared.config.host_facts import read_host_facts
from shared.config.nested import value_of
from shared.host.cgroup_layout import Hierarchies, controllers_of, find_hierarchies
from shared.host.kernel_settings import KUBELET_SETTINGS, differing_settings, sysctl_name
from shared.host.listening_sockets import listening, owner_of
from shared.model.eviction import threshold_amount

_NEEDED = frozenset(("cpu", "memory", "pids"))
# These bind containers to CPUs and memory nodes by a cpuset.
_PINNING = {"cpuManagerPolicy": "static", "memoryManagerPolicy": "Static"}
_MIN_FREE_BYTES = 64 << 20
_MIN_FREE_INODES = 1000
_KUBELET = "kubelet"  # the name of the process, both of the Go kubelet and of ours


def machine_findings(config: EffectiveConfig | None) -> list[Finding]:
    """Yield findings about rights, systemd, kernel, cgroups and swap. `config`: None = it cannot be used, and what the
    agent would change is not known."""
    facts = read_host_facts()
    found = []
    if os.geteuid():
        remedy = "run it as root: what this user may not read is not checked"
        found.append(_machine(Severity.WARNING, "this command runs without root's rights", remedy))
    if facts.systemd:
        found.append(_machine(Severity.OK, "systemd is process 1"))
    else:
        remedy = "start the agent in another way: it needs no systemd"
        found.append(
            _machine(Severity.WARNING, "systemd did not boot this machine: there is no unit to take over", remedy)
        )
    found.append(_kernel())
    if config is not None:
        found += kernel_settings_findings(facts.kernel_settings, keeps=find_places().keeps_kernel_settings)
    found += cgroup_findings(find_hierarchies(), config.document if config is not None else {})
    if facts.swap_on:
        found.append(_machine(Severity.NOTE, "swap is on: containers get some with memorySwap LimitedSwap only"))
    return found


def cgroup_findings(hierarchies: Hierarchies, document: dict[str, Any]) -> list[Finding]:
    """Return findings about the version of cgroups and about missing controllers. `document`: the effective
    configuration."""
    if hierarchies.unified is not None:
        version, there = "v2", controllers_of(hierarchies.unified)
    else:
        version = "v1 and v2 (hybrid)" if hierarchies.beside else "v1"
        there = frozenset(hierarchies.by_controller)
    if not there:
        return [_machine(Severity.PROBLEM, "no cgroups are mounted", "mount cgroup2 at /sys/fs/cgroup")]
    found = [_machine(Severity.OK, f"cgroup {version} with {', '.join(sorted(there))}")]
    pins = any(value_of(document, key) == policy for key, policy in _PINNING.items())
    if missing := sorted((_NEEDED | {"cpuset"} if pins else _NEEDED) - there):
        remedy = "enable them in the kernel's command line or configuration"
        found.append(_machine(Severity.PROBLEM, f"cgroup controllers are missing: {', '.join(missing)}", remedy))
    return found


def _kernel() -> Finding:
    release = platform.release()
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return _machine(Severity.PROBLEM, f"the kernel {release} has no pidfd", "boot Linux 5.3 or newer")
    return _machine(Severity.OK, f"kernel {release}")


def kernel_settings_findings(values: Mapping[str, int], *, keeps: bool) -> list[Finding]:
    """Return a finding that says which kernel settings the agent changes at its start. A machine that a kubelet has set
    up has none. With protectKernelDefaults the configuration has been refused where any differs. `keeps`: the agent is
    to change none."""
    if not values:
        return []
    if not (wrong := differing_settings(values)):
        return [_machine(Severity.OK, "the kernel settings are those of a kubelet")]
    if keeps:
        names = ", ".join(sysctl_name(setting) for setting in wrong)
        return [_machine(Severity.NOTE, f"kernel settings are not those of a kubelet, and stay so: {names}")]
    changes = (
        f"{sysctl_name(setting)} from {value} to {KUBELET_SETTINGS[setting]}" for setting, value in wrong.items()
    )
    return [_machine(Severity.NOTE, f"the agent changes kernel settings, as a kubelet does: {', '.join(changes)}")]


def running_agent(run_dir: str) -> list[Finding]:
    """Return a finding where an agent holds the locks of the run directory."""
    holder = process_of(run_dir, "bootstrap").holder
    if holder is None:
        return []
    what = f"an agent runs already: process {holder.pid}, run directory {run_dir}"
    return [_machine(Severity.WARNING, what, "there is nothing to take over, if it is the one of this node")]


def port_findings(config: EffectiveConfig) -> list[Finding]:
    """Return a finding for each configured port that another process holds; the running kubelet may hold them."""
    wanted = [("port", config.port)] if config.enable_server else []
    wanted += [("readOnlyPort", config.read_only_port), ("healthzPort", config.healthz_port)]
    wanted.append(("--node-page-port", config.node_page_port))
    server = process_of(config.run_dir, "server").holder
    return [_port(key, port, server.pid if server else None) for key, port in wanted if port]


def _port(key: str, port: int, ours: int | None) -> Finding:
    sockets = listening(port)
    where = f"{key} {port}"
    if not sockets:
        return _ports(Severity.OK, where, "is free")
    owner = owner_of(sockets)
    if owner is None:
        remedy = "run this command as root"
        return _ports(Severity.WARNING, where, "is in use by a process that this user may not see", remedy)
    name = _name_of(owner)
    what = f"is in use by {name} (process {owner})"
    if name == _KUBELET or owner == ours:
        return _ports(Severity.OK, where, what)
    return _ports(Severity.PROBLEM, where, what, "stop that process, or choose another port")


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "?"


def disk_findings(config: EffectiveConfig) -> list[Finding]:
    """Yield findings about the room for the agent's files, and about a threshold of eviction that is met."""
    places = {"root directory": config.root_dir, "run directory": config.run_dir, "logs": config.log_dir}
    return [finding for what, path in places.items() for finding in _room(what, path, config)]


def _room(what: str, path: str, config: EffectiveConfig) -> Iterator[Finding]:
    there = next((each for each in (Path(path), *Path(path).parents) if each.exists()), Path("/"))
    where = f"{what} {path}"
    try:
        disk = os.statvfs(there)
    except OSError as error:
        yield _disk(Severity.PROBLEM, where, f"cannot be read: {error.strerror}")
        return
    free, inodes = disk.f_bavail * disk.f_frsize, disk.f_favail
    size = f"{free >> 20} MiB" if free < 10 << 30 else f"{free >> 30} GiB"
    shown = f"{size}{f' and {inodes} inodes' if disk.f_files else ''} free"
    if disk.f_flag & os.ST_RDONLY:
        yield _disk(Severity.PROBLEM, where, "is on a filesystem that is mounted read-only", "mount it writable")
    elif free < _MIN_FREE_BYTES or (disk.f_files and inodes < _MIN_FREE_INODES):
        yield _disk(Severity.PROBLEM, where, shown, f"free {_MIN_FREE_BYTES >> 20} MiB and {_MIN_FREE_INODES} inodes")
    elif not os.access(there, os.W_OK):
        yield _disk(Severity.WARNING, where, f"{shown}; this user may not write there", "run this command as root")
    else:
        yield _disk(Severity.OK, where, shown)
    if path != config.root_dir:
        return
    for signal, amount, capacity in (
        ("nodefs.available", free, disk.f_blocks * disk.f_frsize),
        ("nodefs.inodesFree", inodes, disk.f_files),
    ):
        threshold = config.eviction_hard.get(signal)
        if threshold and capacity and amount < threshold_amount(threshold, capacity):
            below = f"is below the eviction threshold {signal} {threshold}: pods are evicted, as by the kubelet"
            yield _disk(Severity.WARNING, where, below, "free room on this disk first")


def _machine(severity: Severity, what: str, remedy: str = "") -> Finding:
    return Finding(section=Section.MACHINE, severity=severity, what=what, remedy=remedy)


def _ports(severity: Severity, where: str, what: str, remedy: str = "") -> Finding:
    return Finding(section=Section.PORTS, severity=severity, what=what, where=where, remedy=remedy)


def _disk(severity: Severity, where: str, what: str, remedy: str = "") -> Finding:
    return Finding(section=Section.DISK, severity=severity, what=what, where=where, remedy=remedy)
