"""pods.md 6.6, node.md 4.4: a pod's cgroup: its name under both drivers, and what it is given.

Values: (shares, quota, period, memory, pids, huge pages); None = that file is not written.
"""

from dataclasses import dataclass
from typing import Any

from services.podsync.core.cgroups.pod_cgroup import CgroupValues
from tests.unit.podsync.cri.golden.case import CONTAINER, Case, another

Gi = 1 << 30
NONE = {"2MB": 0, "1GB": 0}


@dataclass(frozen=True, kw_only=True)
class CgroupCase:
    """A pod, and its cgroup below kubepods."""

    case: Case
    qos: str  # "burstable", "besteffort", "" for Guaranteed
    values: CgroupValues


def pod(
    name: str, qos: str, resources: dict[str, Any], node: Any = None, spec: Any = None, **values: Any
) -> CgroupCase:
    """A pod of one container with these resources."""
    case = Case(name=name, container={"resources": resources}, node=node or {}, spec=spec or {})
    return CgroupCase(case=case, qos=qos, values=CgroupValues(**{"hugepage_limits": NONE, **values}))


BOTH = {"cpu": "250m", "memory": "1Gi"}
TWO = [
    {**CONTAINER, "resources": {"requests": BOTH, "limits": {"cpu": "500m", "memory": "2Gi"}}},
    another("d", resources={"requests": {"cpu": "250m"}, "limits": {"memory": "1Gi"}}),
]
SMALL = {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "50m", "memory": "64Mi"}}}

CASES = (
    pod("BestEffort", "besteffort", {}, cpu_shares=2),
    pod("Guaranteed", "", {"requests": BOTH, "limits": BOTH},
        cpu_shares=256, cpu_quota=25000, cpu_period=100000, memory_limit=Gi),
    pod("Burstable by a request", "burstable", {"requests": {"cpu": "1"}}, cpu_shares=1024),
    pod("Burstable with limits of all", "burstable", {"requests": BOTH, "limits": {"cpu": "1", "memory": "2Gi"}},
        cpu_shares=256, cpu_quota=100000, cpu_period=100000, memory_limit=2 * Gi),
    pod("Burstable with a limit of cpu alone", "burstable", {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
        cpu_shares=1024, cpu_quota=100000, cpu_period=100000),
    pod("a cpu limit that not every container has does not hold for the pod", "burstable", {},
        spec={"containers": TWO}, cpu_shares=512, memory_limit=3 * Gi),
    pod("init containers count when it is asked whether all have limits", "burstable",
        {"requests": BOTH, "limits": {"cpu": "1", "memory": "2Gi"}}, spec={"initContainers": [another("setup")]},
        cpu_shares=256),
    pod("ephemeral containers do not", "", {"requests": BOTH, "limits": BOTH},
        spec={"ephemeralContainers": [another("debug")]},
        cpu_shares=256, cpu_quota=25000, cpu_period=100000, memory_limit=Gi),
    pod("a limit of the pod", "burstable", {},
        spec={"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}},
        cpu_shares=512, cpu_quota=100000, cpu_period=100000),
    pod("overhead is on top of what has a limit", "", {"requests": BOTH, "limits": BOTH},
        spec={"overhead": {"cpu": "250m", "memory": "1Gi"}},
        cpu_shares=512, cpu_quota=50000, cpu_period=100000, memory_limit=2 * Gi),
    pod("a sidecar and an init container", "", SMALL["resources"],
        spec={"initContainers": [another("side", restartPolicy="Always", **SMALL), another("setup", **SMALL)]},
        cpu_shares=102, cpu_quota=10000, cpu_period=100000, memory_limit=128 << 20),
    pod("no cpu quota on this node", "", {"requests": BOTH, "limits": BOTH}, {"cpu_cfs_quota": False},
        cpu_shares=256, cpu_quota=-1, cpu_period=100000, memory_limit=Gi),
    pod("another period", "", {"requests": BOTH, "limits": BOTH}, {"cpu_cfs_quota_period": 10000},
        cpu_shares=256, cpu_quota=2500, cpu_period=10000, memory_limit=Gi),
    pod("at least a millisecond of cpu", "burstable", {"requests": {"cpu": "1m"}, "limits": {"cpu": "1m"}},
        cpu_shares=2, cpu_quota=1000, cpu_period=100000),
    pod("a limit of processes", "besteffort", {}, {"pod_pids_limit": 100}, cpu_shares=2, pids_limit=100),
    pod("huge pages by the request", "besteffort",
        {"requests": {"hugepages-2Mi": "8Mi"}, "limits": {"hugepages-2Mi": "8Mi"}},
        cpu_shares=2, hugepage_limits={"2MB": 8 << 20, "1GB": 0}),
    pod("the class that the API has is not computed again", "besteffort", {"requests": {"cpu": "1"}}, cpu_shares=2,
        spec={}),
)  # fmt: skip
