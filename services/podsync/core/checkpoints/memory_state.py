"""Reads and writes `memory_manager_state`: the memory of each NUMA node, and the blocks of each container.

Which versions there are: as in `cpu_state`. What is written here is the form that all of them read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from services.podsync.core.checkpoints.checked_value import forms_of_file, read_value, write_value
from services.podsync.core.placement.machine_memory import MachineMemory, MemoryTable, NodeMemory
from services.podsync.core.placement.pod_placement import MemoryBlock
from shared.go_checkpoints.go_types import Field, GoMap, GoNumber, GoSlice, GoStruct, GoText

FILE_NAME = "memory_manager_state"

Blocks = tuple[MemoryBlock, ...]


class MemoryState(Struct, frozen=True, kw_only=True):
    """Has the content of the file. `containers`: blocks by pod UID and name; `pods`: those of a whole pod."""

    policy: str  # None or Static
    machine: MachineMemory = field(default_factory=dict)
    containers: Mapping[str, Mapping[str, Blocks]] = field(default_factory=dict)
    pods: Mapping[str, Blocks] = field(default_factory=dict)


_INTS = GoSlice("[]int", GoNumber("int", "int"))
_TABLE = GoStruct(
    "state.MemoryTable",
    (
        Field("TotalMemSize", GoNumber("uint64"), "total"),
        Field("SystemReserved", GoNumber("uint64"), "systemReserved"),
        Field("Allocatable", GoNumber("uint64"), "allocatable"),
        Field("Reserved", GoNumber("uint64"), "reserved"),
        Field("Free", GoNumber("uint64"), "free"),
    ),
    "<*>",
)
_NODE = GoStruct(
    "state.NUMANodeState",
    (
        Field("NumberOfAssignments", GoNumber("int", "int"), "numberOfAssignments"),
        Field("MemoryMap", GoMap("map[v1.ResourceName]*state.MemoryTable", _TABLE), "memoryMap"),
        Field("Cells", _INTS, "cells"),
    ),
    "<*>",
)
_BLOCK = GoStruct(
    "state.Block",
    (
        Field("NUMAAffinity", _INTS, "numaAffinity"),
        Field("Type", GoText("v1.ResourceName"), "type"),
        Field("Size", GoNumber("uint64"), "size"),
    ),
)
_BLOCKS = GoSlice("[]state.Block", _BLOCK)
_POD = GoStruct("state.PodEntry", (Field("MemoryBlocks", _BLOCKS, "memoryBlocks", omit_empty=True),))
_NODES = GoMap("state.NUMANodeMap", _NODE, numbered=True)
_ENTRIES = GoMap("state.ContainerMemoryAssignments", GoMap("map[string][]state.Block", _BLOCKS))
_POD_ENTRIES = GoMap("state.PodMemoryAssignments", _POD)


_WITHOUT_PODS, _WITH_PODS, _WRITTEN = forms_of_file(
    "MemoryManagerCheckpoint",
    Field("MachineState", _NODES, "machineState", empty_map=True),
    _ENTRIES,
    _POD_ENTRIES,
    later=("V1", "V2"),
)


def read_memory_state(content: bytes) -> MemoryState:
    """Return what the file says. Raises CheckpointError."""
    value = read_value(content, _WITH_PODS, _WRITTEN)
    return MemoryState(
        policy=value["policyName"],
        machine={node: _node(state) for node, state in (value["machineState"] or {}).items() if state is not None},
        containers={
            uid: {name: _blocks(blocks) for name, blocks in (containers or {}).items()}
            for uid, containers in (value["entries"] or {}).items()
        },
        pods={uid: _blocks(pod["memoryBlocks"]) for uid, pod in (value["podEntries"] or {}).items()},
    )


def write_memory_state(state: MemoryState) -> bytes:
    """Return the content of the file."""
    form = _WITH_PODS if state.pods else _WITHOUT_PODS
    value: dict[str, Any] = {
        "policyName": state.policy,
        "machineState": {number: _written_node(node) for number, node in state.machine.items()},
        "entries": {
            uid: {name: _written_blocks(blocks) for name, blocks in containers.items()}
            for uid, containers in state.containers.items()
        },
        "podEntries": {uid: {"memoryBlocks": _written_blocks(blocks)} for uid, blocks in state.pods.items()},
    }
    return write_value(form, value)


def _node(state: Mapping[str, Any]) -> NodeMemory:
    return NodeMemory(
        assignments=state["numberOfAssignments"],
        tables={
            kind: MemoryTable(
                total=table["total"],
                system_reserved=table["systemReserved"],
                allocatable=table["allocatable"],
                reserved=table["reserved"],
                free=table["free"],
            )
            for kind, table in (state["memoryMap"] or {}).items()
            if table is not None
        },
        cells=tuple(state["cells"] or ()),
    )


def _written_node(node: NodeMemory) -> dict[str, Any]:
    tables = {
        kind: {
            "total": table.total,
            "systemReserved": table.system_reserved,
            "allocatable": table.allocatable,
            "reserved": table.reserved,
            "free": table.free,
        }
        for kind, table in node.tables.items()
    }
    return {"numberOfAssignments": node.assignments, "memoryMap": tables, "cells": list(node.cells)}


def _blocks(blocks: Sequence[Mapping[str, Any]] | None) -> Blocks:
    return tuple(
        MemoryBlock(nodes=frozenset(block["numaAffinity"] or ()), kind=block["type"], size=block["size"])
        for block in blocks or ()
    )


def _written_blocks(blocks: Blocks) -> list[dict[str, Any]]:
    return [{"numaAffinity": sorted(block.nodes), "type": block.kind, "size": block.size} for block in blocks]
