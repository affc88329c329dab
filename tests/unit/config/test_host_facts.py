"""What a machine must be for a configuration, on machines made of files."""

from pathlib import Path
from typing import Any

import pytest

from shared.config.findings import Findings
from shared.config.host_facts import HostFacts, check_host, read_host_facts

GIB = 2**30
MACHINE = HostFacts(online_cpus=frozenset(range(4)), memory=8 * GIB, numa_nodes=frozenset({0, 1}))
V1 = HostFacts(cgroup_v1=True)


def tree(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


def lines(data: dict[str, Any], facts: HostFacts) -> list[str]:
    findings = Findings()
    check_host(data, facts, findings)
    return findings.lines


def test_a_machine_with_one_hierarchy(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        "proc/swaps": "Filename Type Size Used Priority\n/swap file 1 0 -2\n",
        "proc/meminfo": "MemFree: 1 kB\nMemTotal:       16384 kB\n",
        "sys/devices/system/cpu/online": "0-1,3\n",
        "sys/devices/system/node/online": "0\n",
    }
    assert read_host_facts(tree(tmp_path, files)) == HostFacts(
        swap_on=True,
        online_cpus=frozenset({0, 1, 3}),
        memory=16 * 2**20,
        numa_nodes=frozenset({0}),
        hierarchies=(f"{tmp_path}/sys/fs/cgroup",),
    )


def test_a_machine_with_a_hierarchy_for_each_controller(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/cgroup.procs": "",
        "sys/fs/cgroup/cpu/cgroup.procs": "",
        "sys/fs/cgroup/systemd/cgroup.procs": "",
        "proc/swaps": "Filename Type Size Used Priority\n",
        "run/lock": "",
    }
    facts = read_host_facts(tree(tmp_path, files))
    assert (facts.cgroup_v1, facts.swap_on, facts.systemd) == (True, False, False)
    assert facts.hierarchies == (f"{tmp_path}/sys/fs/cgroup/cpu", f"{tmp_path}/sys/fs/cgroup/memory")


@pytest.mark.parametrize("meminfo", ["", "MemTotal:", "MemTotal: many kB", "\x00\xff"])
def test_what_cannot_be_read_is_not_checked(tmp_path: Path, meminfo: str) -> None:
    facts = read_host_facts(tree(tmp_path, {"proc/meminfo": meminfo, "sys/devices/system/cpu/online": "?"}))
    assert facts == HostFacts()
    data = {"failCgroupV1": True, "failSwapOn": True, "reservedSystemCPUs": "9", "kubeReserved": {"memory": "9Ei"}}
    assert lines(data, facts) == []


@pytest.mark.parametrize(
    ("bad", "facts", "start", "good"),
    [
        ({"failSwapOn": True}, HostFacts(swap_on=True),
         "failSwapOn: running with swap on is not supported while failSwapOn is true (switch swap off with swapoff -a",
         {"failSwapOn": False}),
        ({"failCgroupV1": True}, V1, "failCgroupV1: is true, and this machine uses cgroup v1", {"failCgroupV1": False}),
        ({"singleProcessOOMKill": False}, V1, "singleProcessOOMKill: is false, which cgroup v1 cannot do",
         {"singleProcessOOMKill": True}),
        ({"memorySwap": {"swapBehavior": "LimitedSwap"}}, V1, "memorySwap.swapBehavior: is LimitedSwap, which cgroup",
         {"memorySwap": {"swapBehavior": "NoSwap"}}),
        ({"cgroupDriver": "systemd"}, HostFacts(systemd=False),
         "cgroupDriver: is systemd, and process 1 of this machine is not systemd (set it to cgroupfs here and in the",
         {"cgroupDriver": "cgroupfs"}),
        ({"protectKernelDefaults": True}, HostFacts(kernel_settings={"vm/overcommit_memory": 0, "kernel/panic": 10}),
         "protectKernelDefaults: is true, and there is invalid kernel flag: vm/overcommit_memory, expected value: 1, a",
         {"protectKernelDefaults": False}),
        ({"reservedSystemCPUs": "2-4"}, MACHINE, 'reservedSystemCPUs: is "2-4", but CPU 4 is not online',
         {"reservedSystemCPUs": "2-3"}),
        ({"systemReserved": {"cpu": "3"}, "kubeReserved": {"cpu": "1001m"}}, MACHINE,
         'systemReserved: Resource "cpu" has a reservation of 4001m but capacity of 4. Expected capacity',
         {"systemReserved": {"cpu": "3"}, "kubeReserved": {"cpu": "1"}}),
        ({"kubeReserved": {"memory": "8Gi"}, "evictionHard": {"memory.available": "1"}}, MACHINE,
         'kubeReserved: Resource "memory" has a reservation of 8589934593 but capacity of 8Gi', {
             "kubeReserved": {"memory": "8Gi"}, "evictionHard": {"memory.available": "100%"}}),
        ({"kubeReserved": {"memory": "7Gi"}, "evictionHard": {"memory.available": "13%"}}, MACHINE,
         'kubeReserved: Resource "memory" has a reservation',
         {"kubeReserved": {"memory": "7Gi"}, "evictionHard": {"memory.available": "12.5%"}}),
        ({"reservedSystemCPUs": "0-4", "kubeReserved": {"cpu": "99"}}, HostFacts(online_cpus=frozenset({0})),
         'reservedSystemCPUs: is "0-4", but CPU 1 is not online', {"reservedSystemCPUs": "0"}),
        ({"topologyManagerPolicy": "best-effort"}, HostFacts(numa_nodes=frozenset(range(9))),
         "topologyManagerPolicy: is best-effort, which is unsupported on machines with more than 8 NUMA Nodes; here a",
         {"topologyManagerPolicy": "best-effort", "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "9"}}),
        ({"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 2, "limits": {"memory": "1Gi"}}],
          "kubeReserved": {"memory": "1Gi"}}, MACHINE,
         "reservedMemory[0]: references a NUMA node 2 that does not exist on this machine (the nodes are 0, 1)",
         {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 1, "limits": {"memory": "1Gi"}}],
          "kubeReserved": {"memory": "1Gi"}}),
        ({"memoryManagerPolicy": "Static", "reservedMemory": [{"limits": {"memory": "1Gi"}}],
          "kubeReserved": {"memory": "1Gi"}, "evictionHard": {"memory.available": "100Mi"}}, MACHINE,
         'reservedMemory: the total amount "1Gi" of type "memory" is not "1124Mi (1178599424 bytes)"',
         {"memoryManagerPolicy": "Static", "reservedMemory": [{"limits": {"memory": "1124Mi"}}],
          "kubeReserved": {"memory": "1Gi"}, "evictionHard": {"memory.available": "100Mi"}}),
        ({"memoryManagerPolicy": "Static", "kubeReserved": {"memory": "1Gi"},
          "reservedMemory": [{"limits": {"memory": "1Gi", "hugepages-2Mi": "2Mi"}}]}, MACHINE,
         'reservedMemory: the total amount "2Mi" of type "hugepages-2Mi" is not "0"',
         {"memoryManagerPolicy": "None", "reservedMemory": [{"limits": {"hugepages-2Mi": "2Mi"}}]}),
    ],
)  # fmt: skip
def test_what_a_machine_cannot_give_is_refused(
    bad: dict[str, Any], facts: HostFacts, start: str, good: dict[str, Any]
) -> None:
    found = lines(bad, facts)
    assert found[0].startswith(start)
    assert found[0].endswith(")")
    assert lines(good, facts) == []


def test_protected_kernel_settings_are_compared_with_those_of_a_kubelet(tmp_path: Path) -> None:
    names = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
    debian = {f"proc/sys/{name}": "0\n" for name in names}
    [line] = lines({"protectKernelDefaults": True}, read_host_facts(tree(tmp_path, debian)))
    assert line == (
        "protectKernelDefaults: is true, and there is "
        "invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0; "
        "invalid kernel flag: kernel/panic, expected value: 10, actual value: 0; "
        "invalid kernel flag: kernel/panic_on_oops, expected value: 1, actual value: 0 "
        "(run sysctl -w vm.overcommit_memory=1 kernel.panic=10 kernel.panic_on_oops=1, or set it to false)"
    )
    kubelets = dict(zip(debian, ("1\n", "0\n", "10\n", "1\n"), strict=True))
    assert lines({"protectKernelDefaults": True}, read_host_facts(tree(tmp_path, kubelets))) == []


def test_a_cgroup_root_that_will_be_made_is_a_warning(tmp_path: Path) -> None:
    facts = HostFacts(hierarchies=(str(tmp_path),))
    findings = Findings()
    for root in ("", "/"):
        check_host({"cgroupRoot": root}, facts, findings)
    (tmp_path / "a").mkdir()
    check_host({"cgroupRoot": "/a"}, facts, findings)
    assert findings.found == []
    check_host({"cgroupRoot": "/a/b"}, facts, findings)
    [finding] = findings.found
    assert finding.line.startswith(f"cgroupRoot: /a/b does not exist in {tmp_path} and will be made")
    assert findings.lines == []


def test_the_driver_systemd_is_fine_where_systemd_booted_the_machine(tmp_path: Path) -> None:
    facts = read_host_facts(tree(tmp_path, {"run/systemd/system/x": "", "sys/fs/cgroup/cgroup.controllers": "cpu"}))
    assert lines({"cgroupDriver": "systemd"}, facts) == []


def test_under_systemd_a_cgroup_root_is_made_of_slices(tmp_path: Path) -> None:
    facts = HostFacts(hierarchies=(str(tmp_path),))
    (tmp_path / "a.slice/a-b_c.slice").mkdir(parents=True)
    findings = Findings()
    check_host({"cgroupDriver": "systemd", "cgroupRoot": "/a/b-c"}, facts, findings)
    assert findings.found == []
    check_host({"cgroupDriver": "systemd", "cgroupRoot": "/a/b"}, facts, findings)
    assert "/a.slice/a-b.slice does not exist" in findings.found[0].line


def test_values_that_are_no_quantities_are_left_to_the_rules() -> None:
    data: dict[str, Any] = {
        "kubeReserved": {"memory": "x"},
        "evictionHard": {"memory.available": "1e999%"},
        "systemReserved": {},
    }
    assert lines(data, MACHINE) == []
    data = {"memoryManagerPolicy": "Static", "reservedMemory": [{"limits": {"memory": "x"}}]}
    assert lines(data, MACHINE) == []
