"""Reads and writes `cpu_manager_state`: the shared pool, and the exclusive CPUs of each container.

Kubelets from 1.18 on write the same JSON; the checksum covers a dump with the name of the Go type, which changed twice.
Newer ones may have an additional string `data` with a checksum of its own, which then counts. What is written here is
the form that all of them read.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from services.podsync.core.checkpoints.checked_value import forms_of_file, read_value, write_value
from shared.go_checkpoints.checksums import (
    CheckpointError,
    Fault,
)
from shared.go_checkpoints.go_types import Field, GoMap, GoText, GoType, GoValueError
from shared.model.cpu_list import parse_cpus, write_cpus
from shared.model.machine_topology import CpuSet

FILE_NAME = "cpu_manager_state"


class CpuState(Struct, frozen=True, kw_only=True):
    """Has the content of the file. `containers`: by pod UID and name; `pods`: CPUs of a whole pod, by its UID."""

    policy: str  # none or static
    shared_pool: CpuSet = frozenset()
    containers: Mapping[str, Mapping[str, CpuSet]] = field(default_factory=dict)
    pods: Mapping[str, CpuSet] = field(default_factory=dict)


class _CpusOfPod(GoType, frozen=True):
    """Describes cpuset.CPUSet in a pod's entry: its dump is a map of numbers, and its JSON is a list such as 0-3."""

    def from_json(self, raw: Any, place: str = "") -> Any:
        cpus = raw.get("cpuSet", "") if isinstance(raw, dict) else None
        return _parsed(cpus, f"{place}.cpuSet")

    def to_json(self, value: Any) -> Any:
        return {"cpuSet": write_cpus(value)} if value else {}

    def bare_dump(self, value: Any) -> str:
        elements = " ".join(f"{cpu}:{{}}" for cpu in sorted(value))
        return f"{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}})map[{elements}]}}}}"


_ENTRIES = GoMap("map[string]map[string]string", GoMap("map[string]string", GoText()))
_POD_ENTRIES = GoMap("state.PodCPUAssignments", _CpusOfPod("state.PodEntry"))


_WITHOUT_PODS, _WITH_PODS, _WRITTEN = forms_of_file(
    "CPUManagerCheckpoint",
    Field("DefaultCPUSet", GoText(), "defaultCpuSet"),
    _ENTRIES,
    _POD_ENTRIES,
    later=("V2", "V3"),
)


def read_cpu_state(content: bytes) -> CpuState:
    """Return what the file says. Raises CheckpointError."""
    value = read_value(content, _WITH_PODS, _WRITTEN)
    return CpuState(
        policy=value["policyName"],
        shared_pool=_cpus(value["defaultCpuSet"], "could not parse default cpu set"),
        containers={
            uid: {
                name: _cpus(text, f'could not parse cpuset for container "{name}" in pod "{uid}"')
                for name, text in (containers or {}).items()
            }
            for uid, containers in (value["entries"] or {}).items()
        },
        pods=value["podEntries"] or {},
    )


def write_cpu_state(state: CpuState) -> bytes:
    """Return the content of the file."""
    form = _WITH_PODS if state.pods else _WITHOUT_PODS
    value: dict[str, Any] = {
        "policyName": state.policy,
        "defaultCpuSet": write_cpus(state.shared_pool),
        "entries": {
            uid: {name: write_cpus(cpus) for name, cpus in containers.items()}
            for uid, containers in state.containers.items()
        },
        "podEntries": state.pods,
    }
    return write_value(form, value)


def _cpus(text: str, what: str) -> CpuSet:
    try:
        return _parsed(text, "")
    except GoValueError:
        raise CheckpointError(Fault.UNKNOWN_FORM, f"{what}: {text[:64]!a} is not a list of CPUs") from None


def _parsed(text: Any, place: str) -> CpuSet:
    cpus = frozenset[int]() if text == "" else parse_cpus(text) if isinstance(text, str) else None
    if cpus is None:
        raise GoValueError(f"{place} is not a list of CPUs")
    return cpus
