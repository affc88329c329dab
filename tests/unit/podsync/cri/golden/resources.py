"""pods.md 6.5, B.1, node.md 4.7, 4.13, 4.19: cpu, memory, swap, huge pages, who is killed first.

The node has 16Gi of memory and 4Gi of swap.
"""

from typing import Any

from tests.unit.podsync.cri.golden.case import CONTAINER, RESOURCES, Case, another, without_message_file

Mi, Gi = 1 << 20, 1 << 30
PARENT = "linux:cgroup_parent"
BURSTABLE, GUARANTEED = {PARENT: "/kubepods/burstable/podU"}, {PARENT: "/kubepods/podU"}


def on(prefix: str, **values: Any) -> dict[str, Any]:
    return {f"{prefix}:{key}": value for key, value in values.items()}


def cpu(request: str, shares: int) -> Case:
    """A cpu request alone."""
    return Case(
        name=f"cpu request {request}",
        container={"resources": {"requests": {"cpu": request}}},
        sandbox={**BURSTABLE, **on(RESOURCES, cpu_shares=shares)},
        message=on(RESOURCES, cpu_shares=shares, oom_score_adj=999),
    )


def cpu_limit(limit: str, shares: int, quota: int) -> Case:
    """A cpu limit, and the request that the API server makes of it."""
    return Case(
        name=f"cpu limit {limit}",
        container={"resources": {"requests": {"cpu": limit}, "limits": {"cpu": limit}}},
        sandbox={**BURSTABLE, **on(RESOURCES, cpu_shares=shares, cpu_quota=quota)},
        message=on(RESOURCES, cpu_shares=shares, cpu_quota=quota, oom_score_adj=999),
    )


def memory(request: str, adjust: int) -> Case:
    """A memory request alone."""
    return Case(
        name=f"memory request {request}",
        container={"resources": {"requests": {"memory": request}}},
        sandbox=BURSTABLE,
        message=on(RESOURCES, oom_score_adj=adjust),
    )


CPU = (
    cpu("1m", 2), cpu("100m", 102), cpu("250m", 256), cpu("500m", 512), cpu("1", 1024), cpu("2", 2048),
    cpu("300", 262144), cpu_limit("5m", 5, 1000), cpu_limit("100m", 102, 10000), cpu_limit("500m", 512, 50000),
    cpu_limit("1500m", 1536, 150000),
    Case(
        name="a cpu request of 0 is one, and has the fewest shares",
        container={"resources": {"requests": {"cpu": "0"}, "limits": {"cpu": "500m"}}},
        sandbox={**BURSTABLE, **on(RESOURCES, cpu_quota=50000)},
        message=on(RESOURCES, cpu_quota=50000, oom_score_adj=999),
    ),
    Case(
        name="without a request the limit gives the shares",
        container={"resources": {"limits": {"cpu": "500m"}}},
        sandbox={**BURSTABLE, **on(RESOURCES, cpu_shares=512, cpu_quota=50000)},
        message=on(RESOURCES, cpu_shares=512, cpu_quota=50000, oom_score_adj=999),
    ),
    Case(
        name="another period of the cpu quota",
        container={"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}}},
        node={"cpu_cfs_quota_period": 50000},
        sandbox={**BURSTABLE, **on(RESOURCES, cpu_shares=512, cpu_quota=25000, cpu_period=50000)},
        message=on(RESOURCES, cpu_shares=512, cpu_quota=25000, cpu_period=50000, oom_score_adj=999),
    ),
    Case(
        name="no cpu quota on this node",
        container={"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}}},
        node={"cpu_cfs_quota": False},
        sandbox={**BURSTABLE, **on(RESOURCES, cpu_shares=512, cpu_period=None)},
        message=on(RESOURCES, cpu_shares=512, cpu_period=None, oom_score_adj=999),
    ),
)  # fmt: skip

MEMORY = (
    memory("256Mi", 985), memory("16373Mi", 3), memory("1Mi", 999), memory("8Gi", 500), memory("17Gi", 3),
    Case(
        name="the worked example: requests and limits of both",
        container={
            "resources": {
                "requests": {"cpu": "100m", "memory": "64Mi"},
                "limits": {"cpu": "200m", "memory": "128Mi"},
            }
        },
        sandbox={**BURSTABLE, **on(RESOURCES, cpu_shares=102, cpu_quota=20000, memory_limit_in_bytes=134217728)},
        message=on(RESOURCES, cpu_shares=102, cpu_quota=20000, memory_limit_in_bytes=134217728, oom_score_adj=997),
        on_v1=on(RESOURCES, memory_swap_limit_in_bytes=134217728),
    ),
    Case(
        name="Guaranteed",
        container={
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
        },
        sandbox={**GUARANTEED, **on(RESOURCES, cpu_shares=1024, cpu_quota=100000, memory_limit_in_bytes=Gi)},
        message=on(RESOURCES, cpu_shares=1024, cpu_quota=100000, memory_limit_in_bytes=Gi, oom_score_adj=-997),
        on_v1=on(RESOURCES, memory_swap_limit_in_bytes=Gi),
    ),
    Case(
        name="cgroup v1 without swap accounting",
        container={"resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}},
        node={"swap_controller": False},
        on=("v1",),
        sandbox={**BURSTABLE, **on(RESOURCES, memory_limit_in_bytes=Gi)},
        message=on(RESOURCES, memory_limit_in_bytes=Gi, oom_score_adj=938),  # 1000 - floor(1000/16)
    ),
)  # fmt: skip

CRITICAL = (
    Case(
        name="the most critical priority class goes last",
        spec={"priorityClassName": "system-node-critical", "priority": 2000001000},
        message=on(RESOURCES, oom_score_adj=-997),
    ),
    Case(name="the other critical class goes by its QoS class", spec={"priorityClassName": "system-cluster-critical",
                                                                       "priority": 2000000000}),
    Case(name="the name of the class alone makes nothing critical", spec={"priorityClassName": "system-node-critical",
                                                                           "priority": 5}),
    Case(
        name="a static pod of that class",
        spec={"priorityClassName": "system-node-critical"},
        metadata={"annotations": {"kubernetes.io/config.source": "file"}},
        sandbox={"annotations": {"kubernetes.io/config.source": "file"}},
        message=on(RESOURCES, oom_score_adj=-997),
    ),
)  # fmt: skip

SIDECARS = (
    Case(
        name="a sidecar is not killed before whom it serves",
        container={"resources": {"requests": {"memory": "8Gi"}}},
        spec={"initContainers": [another("side", restartPolicy="Always", terminationMessagePath="")]},
        of="side",
        sandbox=BURSTABLE,
        message={
            **without_message_file("side", "c320aba"),
            **on(RESOURCES, oom_score_adj=500),
        },
    ),
    Case(
        name="a sidecar that asks for more than the smallest of them keeps its own",
        spec={
            "containers": [{**CONTAINER, "resources": {"requests": {"memory": "8Gi"}}}, another("d")],
            "initContainers": [
                another("side", restartPolicy="Always", terminationMessagePath="",
                        resources={"requests": {"memory": "4Gi"}})
            ],
        },
        of="side",
        sandbox=BURSTABLE,
        message={
            **without_message_file("side", "c320aba"),
            **on(RESOURCES, oom_score_adj=750),
        },
    ),
    Case(
        name="a plain init container goes by its own request",
        container={"resources": {"requests": {"memory": "8Gi"}}},
        spec={"initContainers": [another("setup", terminationMessagePath="")]},
        of="setup",
        sandbox=BURSTABLE,
        message={
            **without_message_file("setup", "fe1b579e"),
            **on(RESOURCES, oom_score_adj=999),
        },
    ),
)  # fmt: skip

POD_LEVEL = (
    Case(
        name="what the pod requests beyond its containers is shared out among them",
        container={"resources": {"requests": {"memory": "4Gi"}}},
        spec={"resources": {"requests": {"memory": "8Gi"}}, "initContainers": [another("setup")]},
        sandbox=BURSTABLE,
        message=on(RESOURCES, oom_score_adj=625),  # 4Gi + (8Gi - 4Gi) / 2 of 16Gi
    ),
    Case(
        name="limits of the pod hold for a container that has none",
        spec={"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}},
        sandbox={**GUARANTEED, **on(RESOURCES, cpu_shares=1024, cpu_quota=100000, memory_limit_in_bytes=Gi)},
        message=on(RESOURCES, cpu_shares=1024, cpu_quota=100000, memory_limit_in_bytes=Gi, oom_score_adj=-997),
        on_v1=on(RESOURCES, memory_swap_limit_in_bytes=Gi),
    ),
    Case(
        name="a container's own limits win over the pod's",
        container={"resources": {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}},
        spec={"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}},
        sandbox={**BURSTABLE, **on(RESOURCES, cpu_shares=512, cpu_quota=200000, memory_limit_in_bytes=2 * Gi)},
        # Its own 64Mi and all of the 960Mi beyond: 1Gi of 16Gi.
        message=on(RESOURCES, cpu_shares=256, cpu_quota=200000, memory_limit_in_bytes=128 * Mi, oom_score_adj=938),
        on_v1=on(RESOURCES, memory_swap_limit_in_bytes=128 * Mi),
    ),
    Case(
        name="where the pod has resources its containers do not make the QoS class",
        container={"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}},
        spec={"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}},
        sandbox={**BURSTABLE, **on(RESOURCES, cpu_shares=1024, cpu_quota=200000, memory_limit_in_bytes=2 * Gi)},
        message=on(RESOURCES, cpu_shares=1024, cpu_quota=100000, memory_limit_in_bytes=Gi, oom_score_adj=938),
        on_v1=on(RESOURCES, memory_swap_limit_in_bytes=Gi),
    ),
)

HUGE_PAGES = (
    Case(
        name="huge pages of one size that the host has, and of one that it has not",
        container={
            "resources": {
                "requests": {"hugepages-2Mi": "4Mi"},
                "limits": {"hugepages-2Mi": "4Mi", "hugepages-64Ki": "64Ki"},
            }
        },
        message=on(RESOURCES, hugepage_limits=[{"page_size": "2MB", "limit": 4 * Mi}, {"page_size": "1GB"}]),
    ),
    Case(
        name="huge pages of both sizes",
        container={"resources": {"limits": {"hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"}}},
        message=on(
            RESOURCES, hugepage_limits=[{"page_size": "2MB", "limit": 4 * Mi}, {"page_size": "1GB", "limit": Gi}]
        ),
    ),
    Case(
        name="huge pages of the pod, and of the container instead of them",
        container={"resources": {"limits": {"hugepages-2Mi": "2Mi"}}},
        spec={"resources": {"limits": {"hugepages-2Mi": "8Mi", "hugepages-1Gi": "2Gi"}}},
        message=on(
            RESOURCES, hugepage_limits=[{"page_size": "2MB", "limit": 2 * Mi}, {"page_size": "1GB", "limit": 2 * Gi}]
        ),
    ),
    Case(name="a host without huge pages", node={"page_sizes": ()}, message=on(RESOURCES, hugepage_limits=None)),
)

UNIFIED = (
    Case(name="v2: only the process that ran out of memory", node={"single_process_oom_kill": True}, on=("v2",),
         message=on(RESOURCES, unified={"memory.swap.max": "0"})),
    Case(name="v2: no swap controller", node={"swap_controller": False}, on=("v2",),
         message=on(RESOURCES, unified={"memory.oom.group": "1"})),
    Case(name="v2: neither", node={"swap_controller": False, "single_process_oom_kill": True}, on=("v2",),
         message=on(RESOURCES, unified=None)),
)  # fmt: skip


def swap(
    name: str, resources: dict[str, Any], most: int, sandbox: dict[str, Any], message: dict[str, Any], **others: Any
) -> Case:
    """A container on a node with LimitedSwap, and how many bytes it may swap."""
    unified = {"memory.oom.group": "1", "memory.swap.max": str(most)}
    return Case(
        name=f"LimitedSwap: {name}", container={"resources": resources}, node={"limited_swap": True}, on=("v2",),
        sandbox=sandbox, message={**on(RESOURCES, unified=unified), **message}, **others,
    )  # fmt: skip


SWAP = (
    swap("its share by what it requests", {"requests": {"memory": "4Gi"}}, Gi, BURSTABLE,
         on(RESOURCES, oom_score_adj=750)),
    swap("rounded down", {"requests": {"memory": "10000001"}}, 2500000, BURSTABLE,
         on(RESOURCES, oom_score_adj=999)),
    swap("none where the limit is the request", {"requests": {"memory": "4Gi"}, "limits": {"memory": "4Gi"}}, 0,
         {**BURSTABLE, **on(RESOURCES, memory_limit_in_bytes=4 * Gi)},
         on(RESOURCES, memory_limit_in_bytes=4 * Gi, oom_score_adj=750)),
    swap("none without a request", {"requests": {"cpu": "1"}}, 0, {**BURSTABLE, **on(RESOURCES, cpu_shares=1024)},
         on(RESOURCES, cpu_shares=1024, oom_score_adj=999)),
    swap("none for BestEffort", {}, 0, {}, {}),
    swap("none for Guaranteed", {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
         0, {**GUARANTEED, **on(RESOURCES, cpu_shares=1024, cpu_quota=100000, memory_limit_in_bytes=Gi)},
         on(RESOURCES, cpu_shares=1024, cpu_quota=100000, memory_limit_in_bytes=Gi, oom_score_adj=-997)),
    swap("none for a critical pod", {"requests": {"memory": "4Gi"}}, 0, BURSTABLE, on(RESOURCES, oom_score_adj=750),
         spec={"priorityClassName": "system-cluster-critical", "priority": 2000000000}),
)  # fmt: skip

CASES = (*CPU, *MEMORY, *CRITICAL, *SIDECARS, *POD_LEVEL, *HUGE_PAGES, *UNIFIED, *SWAP)
