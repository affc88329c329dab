"""The Go kubelet's checkpoint files are read, and written byte for byte (node.md 4.14)."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.podsync.core.checkpoints.cpu_state import CpuState, read_cpu_state, write_cpu_state
from services.podsync.core.checkpoints.device_state import (
    ContainerDevices,
    DeviceState,
    read_device_state,
    write_device_state,
)
from services.podsync.core.checkpoints.memory_state import MemoryState, read_memory_state, write_memory_state
from services.podsync.core.placement.machine_memory import MemoryTable, NodeMemory
from services.podsync.core.placement.pod_placement import MemoryBlock
from shared.go_checkpoints.checksums import (
    MAX_CHECKPOINT_BYTES,
    CheckpointError,
    Fault,
    dump_checksum,
    text_checksum,
)
from tests.unit.podsync.placement.checkpoint_files import CPU, CPU_WITH_OTHER_TYPE_NAMES, DEVICES, MEMORY

READERS: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "cpu": (read_cpu_state, CPU["two pods"]),
    "memory": (read_memory_state, MEMORY["vector"]),
    "devices": (read_device_state, DEVICES["node 1"]),
}
BLOCK = MemoryBlock(nodes=frozenset({0}), kind="memory", size=512)
cpu_sets = st.frozensets(st.integers(0, 300), max_size=20)
names = st.text(max_size=8)
ANY_VALUE = st.none() | st.booleans() | st.integers() | st.text()
KEYS = st.sampled_from(
    [
        "policyName",
        "entries",
        "machineState",
        "podEntries",
        "Data",
        "checksum",
        "Checksum",
        "0",
        "cells",
        "memoryMap",
        "data",
        "BootID",
        "PodDeviceEntries",
        "RegisteredDevices",
        "defaultCpuSet",
    ]
)


DUMPS = {
    354655845: "(*state.CPUManagerCheckpoint){PolicyName:(string)none DefaultCPUSet:(string)4-6 "
    "Entries:(map[string]map[string]string)map[] Checksum:(checksum.Checksum)0}",
    3610638499: "(*state.CPUManagerCheckpoint){PolicyName:(string)none DefaultCPUSet:(string)1-3 "
    "Entries:(map[string]map[string]string)map[pod:map[container1:4-6 container2:1-3]] Checksum:(checksum.Checksum)0}",
}


@pytest.mark.parametrize("checksum", DUMPS)
def test_the_checksum_of_a_dump_is_that_of_the_reference(checksum: int) -> None:
    assert dump_checksum(DUMPS[checksum]) == checksum


def test_a_file_is_written_as_it_was_read(subtests: pytest.Subtests) -> None:
    kinds: tuple[tuple[dict[str, bytes], Callable[[bytes], Any], Callable[[Any], bytes]], ...] = (
        (CPU, read_cpu_state, write_cpu_state),
        (MEMORY, read_memory_state, write_memory_state),
        (DEVICES, read_device_state, write_device_state),
    )
    for number, (files, read, write) in enumerate(kinds):
        for name, content in files.items():
            with subtests.test(f"{number}: {name}"):
                assert write(read(content)) == content


def test_each_file_says_who_has_what() -> None:
    assert read_cpu_state(CPU["two pods"]) == CpuState(
        policy="static",
        shared_pool=frozenset({0, 13}),
        containers={
            "55784671-0e4e-49e2-b4d6-c0377ca14c81": {"app": frozenset(range(1, 13))},
            "6c5f3038-adfc-485d-9943-3fd5e825300d": {"app": frozenset(range(14, 28))},
        },
    )
    table = MemoryTable(total=2048, system_reserved=512, allocatable=1536, reserved=512, free=1024)
    assert read_memory_state(MEMORY["a pod as a whole"]) == MemoryState(
        policy="static",
        machine={0: NodeMemory(tables={"memory": table})},
        containers={"pod": {"container1": (BLOCK,)}},
        pods={"pod": (BLOCK,)},
    )
    state = read_device_state(DEVICES["no node"])
    assert state.registered == {"nvidia.com/gpu": ("tegra",)}
    [held] = state.allocated
    assert (held.pod_uid, held.container, held.resource) == (
        "bf52b2cd-b611-4e79-86b1-280b283185c3",
        "check",
        "nvidia.com/gpu",
    )
    assert held.devices == {-1: ("tegra",)}
    assert held.answer is not None
    assert b"NVIDIA_VISIBLE_DEVICES" in held.answer


def test_the_checksums_of_versions_with_other_type_names_are_accepted() -> None:
    second, third = (read_cpu_state(content) for content in CPU_WITH_OTHER_TYPE_NAMES.values())
    assert second.containers == {"pod": {"container1": frozenset({4, 5, 6}), "container2": frozenset({1, 2, 3})}}
    assert third.pods == {"pod2": frozenset({7, 8, 9})}


def test_a_checksum_of_0_or_none_is_not_checked() -> None:
    for content in (b'{"policyName":"none","defaultCpuSet":"","checksum":0}', b'{"policyName":"none"}'):
        assert read_cpu_state(content) == CpuState(policy="none")
    assert read_memory_state(b'{"policyName":"None","checksum":0}') == MemoryState(policy="None")


def test_the_string_that_newer_kubelets_add_counts_and_has_its_own_checksum() -> None:
    inner = '{"policyName":"static","defaultCpuSet":"0-1","entries":{"u":{"c":"2"}}}'
    outer: dict[str, Any] = {"policyName": "none", "defaultCpuSet": "", "checksum": 0, "data": inner}
    outer["dataChecksum"] = text_checksum(inner)
    found = read_cpu_state(json.dumps(outer).encode())
    expected = CpuState(policy="static", shared_pool=frozenset({0, 1}), containers={"u": {"c": frozenset({2})}})
    assert found == expected
    outer["dataChecksum"] += 1
    with pytest.raises(CheckpointError, match="corrupted"):
        read_cpu_state(json.dumps(outer).encode())


def test_devices_of_a_kubelet_before_1_20_have_no_node() -> None:
    data = (
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)[{PodUID:(string)u "
        "ContainerName:(string)c ResourceName:(string)example.com/gpu DeviceIDs:([]string)[a b] "
        "AllocResp:([]uint8)[18 0]}] RegisteredDevices:(map[string][]string)map[example.com/gpu:[a b]]}"
    )
    entry = {
        "PodUID": "u",
        "ContainerName": "c",
        "ResourceName": "example.com/gpu",
        "DeviceIDs": ["a", "b"],
        "AllocResp": "EgA=",
    }
    content = {"PodDeviceEntries": [entry], "RegisteredDevices": {"example.com/gpu": ["a", "b"]}}
    state = read_device_state(json.dumps({"Data": content, "Checksum": dump_checksum(data)}).encode())
    assert [one.devices for one in state.allocated] == [{-1: ("a", "b")}]


def test_no_allocation_is_null_as_the_go_kubelet_writes_it() -> None:
    content = write_device_state(DeviceState(boot_id="b"))
    assert json.loads(content)["Data"] == {"PodDeviceEntries": None, "RegisteredDevices": {}}
    assert read_device_state(content) == DeviceState(boot_id="b")


@pytest.mark.parametrize("kind", READERS)
def test_a_file_that_is_cut_short_is_not_json(kind: str) -> None:
    read, content = READERS[kind]
    for length in range(len(content)):
        with pytest.raises(CheckpointError) as raised:
            read(content[:length])
        assert raised.value.fault is Fault.NOT_JSON
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", READERS)
def test_another_value_has_another_checksum(kind: str) -> None:
    read, content = READERS[kind]
    for old, new in ((b'"app"', b'"apq"'), (b"512", b"513"), (b"GPU-77", b"GPU-78")):
        if old in content:
            with pytest.raises(CheckpointError, match="checkpoint is corrupted") as raised:
                read(content.replace(old, new, 1))
            assert raised.value.fault is Fault.WRONG_CHECKSUM


def test_a_form_of_another_version_is_named(subtests: pytest.Subtests) -> None:
    for kind, content, what in [
        ("cpu", b"[]", "the file is not a JSON object"),
        ("cpu", b'{"policyName":1}', "policyName is not a string"),
        ("cpu", b'{"entries":[]}', "entries is not an object"),
        ("cpu", b'{"entries":{"container-id-of-1.17":"1-2"}}', "entries[container-id-of-1.17] is not an object"),
        ("cpu", b'{"checksum":-1}', "checksum is not a number of type uint64"),
        ("cpu", b'{"defaultCpuSet":"1-"}', "could not parse default cpu set: '1-' is not a list of CPUs"),
        ("cpu", b'{"podEntries":{"u":{"cpuSet":"x"}}}', "podEntries[u].cpuSet is not a list of CPUs"),
        ("cpu", b'{"data":7}', "data is not a string"),
        ("memory", b'{"machineState":{"x":{}}}', "machineState has the key 'x', which is not a number"),
        ("memory", b'{"machineState":{"0":{"cells":[true]}}}', "machineState[0].cells[0] is not a number of type int"),
        ("memory", b'{"entries":{"u":{"c":{}}}}', "entries[u][c] is not a list"),
        ("devices", b"{}", "checkpoint is corrupted: its checksum is not that of its content"),
        ("devices", b'{"Data":{"RegisteredDevices":[]}}', "Data.RegisteredDevices is not an object"),
        ("devices", b'{"Data":{"PodDeviceEntries":[{"AllocResp":"*"}]}}', "Data.PodDeviceEntries[0].AllocResp is not"),
    ]:
        with subtests.test(kind):
            with pytest.raises(CheckpointError) as raised:
                READERS[kind][0](content)
            assert str(raised.value).startswith(what)


@pytest.mark.parametrize("kind", READERS)
def test_a_huge_file_is_not_read(kind: str) -> None:
    with pytest.raises(CheckpointError, match="longer than 4 MiB"):
        READERS[kind][0](b" " * (MAX_CHECKPOINT_BYTES + 1))


@pytest.mark.parametrize("kind", READERS)
@given(content=st.recursive(ANY_VALUE, lambda one: st.lists(one, max_size=3) | st.dictionaries(KEYS, one, max_size=4)))
def test_any_json_is_read_or_refused(kind: str, content: Any) -> None:
    try:
        READERS[kind][0](json.dumps(content).encode())
    except CheckpointError as error:
        assert "\n" not in str(error)


@pytest.mark.long
@given(
    st.dictionaries(names, st.dictionaries(names, cpu_sets.filter(bool), min_size=1, max_size=3), max_size=4), cpu_sets
)
def test_every_state_of_a_cpu_manager_is_read_as_it_was_written(containers: Any, pool: frozenset[int]) -> None:
    state = CpuState(policy="static", shared_pool=pool, containers=containers)
    assert read_cpu_state(write_cpu_state(state)) == state


IDS = st.dictionaries(st.integers(-1, 7), st.lists(names, max_size=4), max_size=4)


@pytest.mark.long
@given(st.lists(st.tuples(names, names, IDS, st.binary(max_size=20)), max_size=5))
def test_every_state_of_a_device_manager_is_read_as_it_was_written(entries: Any) -> None:
    state = DeviceState(
        allocated=tuple(
            ContainerDevices(
                pod_uid=uid,
                container=name,
                resource="example.com/gpu",
                devices={node: tuple(ids) for node, ids in devices.items()},
                answer=answer,
            )
            for uid, name, devices, answer in entries
        )
    )
    assert read_device_state(write_device_state(state)) == state
