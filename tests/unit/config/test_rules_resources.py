"""Rules of cgroups, reservations, placement, shutdown: each with a value that breaks it and one that does not."""

import pytest

from tests.unit.config.rule_checks import Case, found, holds, named

CASES: list[Case] = [
    # cgroups and what is kept back
    ({"cgroupRoot": "/a/../b"}, {}, 'cgroupRoot: is "/a/../b", must be without ..', {"cgroupRoot": "/a..b"}, {}),
    ({"systemCgroups": "/s"}, {}, "systemCgroups: is set while cgroupRoot is empty",
     {"systemCgroups": "/s", "cgroupRoot": "/"}, {}),
    ({"systemCgroups": "/", "cgroupRoot": "/"}, {}, 'systemCgroups: is "/", the root cgroup',
     {"systemCgroups": "", "cgroupRoot": "/"}, {}),
    ({"enforceNodeAllocatable": ["pod"]}, {}, 'enforceNodeAllocatable[0]: is "pod", must be one of none, pods, system-',
     {"enforceNodeAllocatable": ["pods"]}, {}),
    ({"enforceNodeAllocatable": ["pods", "pods"]}, {}, "enforceNodeAllocatable[1]: pods is given twice",
     {"enforceNodeAllocatable": []}, {}),
    ({"enforceNodeAllocatable": ["pods", "none"]}, {}, "enforceNodeAllocatable[1]: none goes with nothing else",
     {"enforceNodeAllocatable": ["none"]}, {}),
    ({"enforceNodeAllocatable": ["system-reserved"]}, {},
     "enforceNodeAllocatable[0]: system-reserved needs systemReservedCgroup, which is not set",
     {"enforceNodeAllocatable": ["system-reserved"], "systemReservedCgroup": "/s"}, {}),
    ({"enforceNodeAllocatable": ["system-reserved-compressible"]}, {},
     "enforceNodeAllocatable[0]: system-reserved-compressible needs systemReservedCgroup",
     {"enforceNodeAllocatable": ["system-reserved-compressible"], "systemReservedCgroup": "/s"}, {}),
    ({"enforceNodeAllocatable": ["kube-reserved"]}, {}, "enforceNodeAllocatable[0]: kube-reserved needs kubeReservedC",
     {"enforceNodeAllocatable": ["kube-reserved"], "kubeReservedCgroup": "/k"}, {}),
    ({"enforceNodeAllocatable": ["kube-reserved-compressible"]}, {},
     "enforceNodeAllocatable[0]: kube-reserved-compressible needs kubeReservedCgroup",
     {"enforceNodeAllocatable": ["kube-reserved-compressible"], "kubeReservedCgroup": "/k"}, {}),
    ({"enforceNodeAllocatable": ["kube-reserved-compressible", "kube-reserved"], "kubeReservedCgroup": "/k"}, {},
     "enforceNodeAllocatable[0]: kube-reserved-compressible does not go with kube-reserved",
     {"enforceNodeAllocatable": ["kube-reserved-compressible", "system-reserved"], "kubeReservedCgroup": "/k",
      "systemReservedCgroup": "/s"}, {}),
    ({"enforceNodeAllocatable": ["system-reserved", "system-reserved-compressible"], "systemReservedCgroup": "/s"}, {},
     "enforceNodeAllocatable[1]: system-reserved-compressible does not go with system-reserved",
     {"enforceNodeAllocatable": ["pods", "system-reserved"], "systemReservedCgroup": "/s"}, {}),
    ({"cgroupsPerQOS": False}, {}, "cgroupsPerQOS: is false while enforceNodeAllocatable is not empty (set that to [n",
     {"cgroupsPerQOS": False, "enforceNodeAllocatable": ["none"]}, {}),
    ({"cgroupsPerQOS": False, "enforceNodeAllocatable": ["kube-reserved"], "kubeReservedCgroup": "/k"}, {},
     "cgroupsPerQOS: is false while", {"cgroupsPerQOS": False, "enforceNodeAllocatable": []}, {}),
    ({"cpuCFSQuotaPeriod": "50ms"}, {"CustomCPUCFSQuotaPeriod": False}, "cpuCFSQuotaPeriod: is 50ms, must be 100ms whi",
     {"cpuCFSQuotaPeriod": "0.1s"}, {"CustomCPUCFSQuotaPeriod": False}),
    ({"memoryThrottlingFactor": 0}, {}, "memoryThrottlingFactor: is 0, must be above 0 and at most 1",
     {"memoryThrottlingFactor": 0.000001}, {}),
    ({"memoryThrottlingFactor": float("nan")}, {}, "memoryThrottlingFactor: is nan, must be from 0 to 1",
     {"memoryThrottlingFactor": 1}, {}),
    ({"memoryReservationPolicy": "TieredReservation"}, {}, "memoryReservationPolicy: is TieredReservation while",
     {"memoryReservationPolicy": "TieredReservation"}, {"MemoryQoS": True}),
    ({"qosReserved": {"cpu": "5%"}}, {}, 'qosReserved.cpu: cannot reserve "cpu" resource', {"qosReserved": {}}, {}),
    ({"qosReserved": {"memory": "101%"}}, {}, 'qosReserved.memory: is "101%", must be a whole percentage',
     {"qosReserved": {"memory": "100%"}}, {}),
    ({"qosReserved": {"memory": "-1%"}}, {}, 'qosReserved.memory: is "-1%"', {"qosReserved": {"memory": "0%"}}, {}),
    ({"qosReserved": {"memory": "50"}}, {}, 'qosReserved.memory: is "50"', {"qosReserved": {"memory": "50%"}}, {}),
    ({"qosReserved": {"memory": "1.5%"}}, {}, 'qosReserved.memory: is "1.5%"', {"qosReserved": {"memory": "1%"}}, {}),
    ({"reservedMemory": [{"numaNode": 0, "limits": {"cpu": "1"}}]}, {},
     "reservedMemory[0].limits.cpu: must be memory or hugepages-<size>",
     {"reservedMemory": [{"numaNode": 0, "limits": {"hugepages-2Mi": "2Mi"}}]}, {}),
    ({"reservedMemory": [{"numaNode": 0, "limits": {"memory": 0}}]}, {},
     "reservedMemory[0].limits.memory: is 0, must be more",
     {"reservedMemory": [{"numaNode": 0, "limits": {"memory": 1}}]}, {}),
    ({"reservedMemory": [{"limits": {"memory": "x"}}]}, {}, 'reservedMemory[0].limits.memory: is "x", must be a quan',
     {"reservedMemory": [{"limits": {"memory": "1Gi"}}]}, {}),
    ({"reservedMemory": [{"limits": {"memory": "1"}}, {"numaNode": 0, "limits": {"memory": "2"}}]}, {},
     "reservedMemory[1].limits.memory: a second memory of NUMA node 0",
     {"reservedMemory": [{"limits": {"memory": "1"}}, {"numaNode": 1, "limits": {"memory": "2"}}]}, {}),
    ({"reservedSystemCPUs": "1-0"}, {}, 'reservedSystemCPUs: is "1-0", must be a list of CPUs',
     {"reservedSystemCPUs": "0-1,4"}, {}),
    ({"reservedSystemCPUs": "0, 1"}, {}, 'reservedSystemCPUs: is "0, 1"', {"reservedSystemCPUs": "1-1"}, {}),
    ({"reservedSystemCPUs": "0", "systemReservedCgroup": "/s"}, {}, "systemReservedCgroup: cannot be set together",
     {"systemReservedCgroup": "/s"}, {}),
    ({"reservedSystemCPUs": "0", "kubeReservedCgroup": "/k"}, {}, "kubeReservedCgroup: cannot be set together",
     {"kubeReservedCgroup": "/k"}, {}),
    ({"systemReserved": {"hugepages-2Mi": "2Mi"}}, {}, 'systemReserved.hugepages-2Mi: cannot reserve "hugepages-2Mi"',
     {"systemReserved": {"cpu": "1", "memory": "0", "ephemeral-storage": "1Gi", "pid": "100"}}, {}),
    ({"kubeReserved": {"cpu": "-1m"}}, {}, 'kubeReserved.cpu: is "-1m", must be a quantity that is not negative',
     {"kubeReserved": {"cpu": "0"}}, {}),
    # policies
    ({"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}, {},
     "cpuManagerPolicyOptions: is set while cpuManagerPolicy is none, which has no options",
     {"cpuManagerPolicyOptions": {}}, {}),
    ({"cpuManagerPolicy": "static"}, {}, "cpuManagerPolicy: is static, which requires systemReserved.cpu + kubeReserv",
     {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1m"}}, {}),
    ({"cpuManagerPolicy": "static", "systemReserved": {"cpu": "0"}}, {}, "cpuManagerPolicy: is static, which requires",
     {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}, {}),
    ({"memoryManagerPolicy": "Static"}, {}, "memoryManagerPolicy: is Static while reservedMemory is empty",
     {"memoryManagerPolicy": "Static", "reservedMemory": [{"limits": {"memory": "1Gi"}}]}, {}),
    ({"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": {"nearest": "true"}}, {},
     'topologyManagerPolicyOptions.nearest: "nearest" is not an option (options are prefer-closest-numa-nodes, max-',
     {"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": {}}, {}),
    ({"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "yes"}}, {},
     'topologyManagerPolicyOptions.prefer-closest-numa-nodes: is "yes", must be true or false',
     {"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "T"}}, {}),
    ({"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "7"}}, {},
     'topologyManagerPolicyOptions.max-allowable-numa-nodes: is "7", must be a whole number of at least 8',
     {"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "8"}}, {}),
    ({"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "8.5"}}, {},
     'topologyManagerPolicyOptions.max-allowable-numa-nodes: is "8.5"',
     {"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "64"}}, {}),
    # Node
    ({"registerWithTaints": [{"key": "a", "effect": "Never"}]}, {}, "registerWithTaints[0]: effect is",
     {"registerWithTaints": [{"key": "a", "effect": "NoExecute"}]}, {}),
    ({"allowedUnsafeSysctls": ["*"]}, {}, 'allowedUnsafeSysctls: "*" is not known to be namespaced',
     {"allowedUnsafeSysctls": ["kernel.msg*"]}, {}),
    ({"allowedUnsafeSysctls": ["net*"]}, {}, 'allowedUnsafeSysctls: "net*" is not known to be namespaced',
     {"allowedUnsafeSysctls": ["net.*", "net/ipv4/ip_forward"]}, {}),
    ({"allowedUnsafeSysctls": ["vm.swappiness"]}, {}, 'allowedUnsafeSysctls: "vm.swappiness" is not known to be',
     {"allowedUnsafeSysctls": ["kernel.sem", "fs.mqueue.*"]}, {}),
    ({"defaultPodSysctls": {"net.core.somaxconn": "1"}}, {"DefaultPodSysctls": False},
     "defaultPodSysctls: is set while feature gate DefaultPodSysctls is off (switch the gate on, or leave this out)",
     {"defaultPodSysctls": {"net.core.somaxconn": "1"}}, {"DefaultPodSysctls": True}),
    ({"defaultPodSysctls": {"vm.swappiness": "1"}}, {"DefaultPodSysctls": True},
     'defaultPodSysctls: "vm.swappiness" is not known to be namespaced: setting it would change the whole node (such',
     {"defaultPodSysctls": {"user.max_user_namespaces": "1", "kernel.domainname": "d"}}, {"DefaultPodSysctls": True}),
    ({"defaultPodSysctls": {"kernel.hostname": "h"}}, {"DefaultPodSysctls": True},
     'defaultPodSysctls: "kernel.hostname" is not known to be namespaced', {"defaultPodSysctls": {"kernel.sem": "1"}},
     {"DefaultPodSysctls": True}),
    ({"defaultPodSysctls": {"net.*": "1"}}, {"DefaultPodSysctls": True},
     'defaultPodSysctls: "net.*" is not the name of a sysctl (such as net.core.somaxconn)',
     {"defaultPodSysctls": {"fs/mqueue/msg_max": "1"}}, {"DefaultPodSysctls": True}),
    ({"defaultPodSysctls": {"net.ipv4.tcp_rmem": "1", "net/ipv4/tcp_rmem": "2"}}, {"DefaultPodSysctls": True},
     'defaultPodSysctls: "net.ipv4.tcp_rmem" and "net/ipv4/tcp_rmem" are one sysctl (remove one of them)',
     {"defaultPodSysctls": {"net/ipv4/tcp_rmem": "2"}}, {"DefaultPodSysctls": True}),
    ({"allowedUnsafeSysctls": ["a*b"]}, {}, 'allowedUnsafeSysctls: "a*b" is neither the name', {}, {}),
    # shutdown
    ({"shutdownGracePeriod": "999ms"}, {}, 'shutdownGracePeriod: is "999ms", must be 0s or at least 1s',
     {"shutdownGracePeriod": "1s"}, {}),
    ({"shutdownGracePeriod": "-1s"}, {}, 'shutdownGracePeriod: is "-1s"', {"shutdownGracePeriod": "0s"}, {}),
    ({"shutdownGracePeriod": "9s", "shutdownGracePeriodCriticalPods": "1ms"}, {},
     'shutdownGracePeriodCriticalPods: is "1ms", must be 0s or at least 1s',
     {"shutdownGracePeriod": "9s", "shutdownGracePeriodCriticalPods": "1s"}, {}),
    ({"shutdownGracePeriod": "9s", "shutdownGracePeriodCriticalPods": "9.001s"}, {},
     "shutdownGracePeriodCriticalPods: is 9.001s, must be at most shutdownGracePeriod, 9s",
     {"shutdownGracePeriod": "9s", "shutdownGracePeriodCriticalPods": "9s"}, {}),
    ({"shutdownGracePeriod": "9s"}, {"GracefulNodeShutdown": False}, "shutdownGracePeriod: is set while feature gate",
     {"shutdownGracePeriod": "0s"}, {"GracefulNodeShutdown": False}),
    ({"shutdownGracePeriod": "9s", "shutdownGracePeriodByPodPriority": [{"priority": 1}]}, {},
     "shutdownGracePeriod: does not go with shutdownGracePeriodByPodPriority",
     {"shutdownGracePeriodByPodPriority": [{"priority": 1, "shutdownGracePeriodSeconds": 9}]}, {}),
    ({"shutdownGracePeriodByPodPriority": [{"priority": 1}]}, {"GracefulNodeShutdownBasedOnPodPriority": False},
     "shutdownGracePeriodByPodPriority: is set while feature gate GracefulNodeShutdownBasedOnPodPriority is off",
     {"shutdownGracePeriodByPodPriority": []}, {"GracefulNodeShutdownBasedOnPodPriority": False}),
]  # fmt: skip


def test_a_rule_refuses_the_bad_value_and_leaves_its_neighbour(subtests: pytest.Subtests) -> None:
    for case in CASES:
        with subtests.test(named(case)):
            holds(case)


CPU = {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1"}}
CPU_GATES = {"CPUManagerPolicyAlphaOptions": True}


def test_options_of_the_cpu_manager(subtests: pytest.Subtests) -> None:
    for options, gates, line in [
        ({"full-pcpus-only": "true", "strict-cpu-reservation": "1"}, {}, ""),
        ({"prefer-align-cpus-by-uncorecache": "t", "distribute-cpus-across-numa": "false"}, {}, ""),
        ({"full": "true"}, {}, 'full: "full" is not an option (options are full-pcpus-only, strict-cpu-reservation'),
        ({"full-pcpus-only": "yes"}, {}, 'full-pcpus-only: is "yes", must be true or false (change it)'),
        (
            {"distribute-cpus-across-numa": "true"},
            {"CPUManagerPolicyBetaOptions": False},
            "distribute-cpus-across-numa: needs feature gate CPUManagerPolicyBetaOptions, which is off",
        ),
        ({"align-by-socket": "true"}, {}, "align-by-socket: needs feature gate CPUManagerPolicyAlphaOptions"),
        ({"distribute-cpus-across-cores": "0"}, {}, "distribute-cpus-across-cores: needs feature gate CPUManagerPol"),
        ({"align-by-socket": "true"}, CPU_GATES, ""),
        ({"full-pcpus-only": "1", "distribute-cpus-across-cores": "0"}, CPU_GATES, ""),
        *(
            ({one: "true", other: "true"}, CPU_GATES, f"{other}: does not go with {one} (switch one of them off)")
            for one, other in (
                ("full-pcpus-only", "distribute-cpus-across-cores"),
                ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
                ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
                ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
            )
        ),
    ]:
        with subtests.test(f"{options!r:.80}"):
            lines = found({**CPU, "cpuManagerPolicyOptions": options}, **gates)
            assert len(lines) == bool(line)
            assert "".join(lines).startswith(f"cpuManagerPolicyOptions.{line}" if line else "")


def test_cpus_aligned_by_socket_do_not_go_with_a_single_numa_node() -> None:
    changes = {**CPU, "cpuManagerPolicyOptions": {"align-by-socket": "true"}}
    [line] = found({**changes, "topologyManagerPolicy": "single-numa-node"}, **CPU_GATES)
    assert line.startswith("cpuManagerPolicyOptions.align-by-socket: does not go with topologyManagerPolicy single-")
    assert found({**changes, "topologyManagerPolicy": "restricted"}, **CPU_GATES) == []
