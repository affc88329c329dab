"""What podsync reads of the machine: its processes, and whether the kernel limits swap."""

from pathlib import Path

import pytest

from bus.messages.podsync import NodeResources
from services.podsync.adapters import node_facts_reader
from shared.config.effective import EffectiveConfig


@pytest.mark.parametrize(("pid_max", "threads_max"), [("4194304", "189000"), ("32768", "189000")])
def test_the_node_has_as_many_processes_as_the_lower_of_the_kernels_limits(
    monkeypatch: pytest.MonkeyPatch, pid_max: str, threads_max: str
) -> None:
    values = {"/proc/sys/kernel/pid_max": pid_max + "\n", "/proc/sys/kernel/threads-max": threads_max + "\n"}
    monkeypatch.setattr(node_facts_reader, "_text", lambda path: values.get(path, ""))
    config = EffectiveConfig(node_name="n", root_dir="/r", run_dir="/r", log_dir="/r", cert_dir="/r")
    assert node_facts_reader.read_node_capacity(config).pids == min(int(pid_max), int(threads_max))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ((), ("192.0.2.2",)),
        (("0.0.0.0",), ("192.0.2.2",)),
        (("::",), ("fd00::2",)),
        (("192.0.2.9", "fd00::9"), ("192.0.2.9", "fd00::9")),
    ],
)
def test_without_a_node_ip_pods_of_the_host_network_have_one_address_as_the_node_has(
    monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], found: tuple[str, ...]
) -> None:
    monkeypatch.setattr(node_facts_reader, "default_route_addresses", lambda: ("192.0.2.2", "fd00::2"))
    config = EffectiveConfig(node_name="n", root_dir="/r", run_dir="/r", log_dir="/r", cert_dir="/r", node_ips=given)
    facts = node_facts_reader.read_node_facts(config, NodeResources(capacity={}, allocatable={}), cgroup_v2=True)
    assert facts.node_ips == found


@pytest.mark.parametrize("has_swap_controller", [True, False])
def test_swap_can_be_limited_on_v2_where_our_own_cgroup_has_the_file(
    monkeypatch: pytest.MonkeyPatch, has_swap_controller: bool
) -> None:
    monkeypatch.setattr(node_facts_reader, "_text", lambda _: "0::/system.slice/bulkhead.service\n")
    file = "/sys/fs/cgroup/system.slice/bulkhead.service/memory.swap.max"
    monkeypatch.setattr(Path, "exists", lambda path: has_swap_controller and str(path) == file)
    assert node_facts_reader._swap_controller(cgroup_v2=True) is has_swap_controller


@pytest.mark.parametrize("has_swap_controller", [True, False])
def test_swap_can_be_limited_on_v1_where_the_kernel_counts_it(
    monkeypatch: pytest.MonkeyPatch, has_swap_controller: bool
) -> None:
    file = "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"
    monkeypatch.setattr(Path, "exists", lambda path: has_swap_controller and str(path) == file)
    assert node_facts_reader._swap_controller(cgroup_v2=False) is has_swap_controller


@pytest.mark.parametrize(
    ("release", "gate", "v2", "reset"),
    [
        ("1.37", False, True, True),
        ("1.37", True, True, False),
        ("1.37", False, False, False),
        ("1.36", False, True, False),
    ],
)
def test_what_memory_qos_has_left_is_taken_back_with_the_gate_off_since_1_37(
    release: str, gate: bool, v2: bool, reset: bool
) -> None:
    config = EffectiveConfig(
        node_name="n", root_dir="/r", run_dir="/r", log_dir="/r", cert_dir="/r", emulated_version=release,
        feature_gates={"MemoryQoS": gate},
    )  # fmt: skip
    facts = node_facts_reader.read_node_facts(config, NodeResources(capacity={}, allocatable={}), cgroup_v2=v2)
    assert (facts.resets_memory_qos, facts.memory_qos) == (reset, gate and v2)
