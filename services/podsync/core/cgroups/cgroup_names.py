"""From the name of a cgroup (`shared/cgroup_name.py`) to its systemd unit, and to the pod that it belongs to. Pure."""

from services.podsync.core.cgroups.pod_cgroup import POD_PREFIX, qos_cgroup_name
from services.podsync.core.node.node_facts import NodeFacts
from shared.podspec.qos import QosClass

SYSTEMD, CGROUPFS = "systemd", "cgroupfs"
_SLICE = ".slice"


def unit_of(name: str) -> str:
    """The systemd unit of a cgroup's path."""
    return name.rstrip("/").rpartition("/")[2]


def parent_unit_of(name: str) -> str:
    """The unit above it; "" for a slice at the top, which is in the root slice by itself."""
    unit = name.rstrip("/").rpartition("/")[0].rpartition("/")[2]
    return unit if unit.endswith(_SLICE) else ""


def pod_uid_of(directory: str, driver: str) -> str | None:
    """The UID of the pod whose cgroup's directory has this name; None where it is no pod's."""
    if driver == SYSTEMD:
        if not directory.endswith(_SLICE):
            return None
        directory = directory.removesuffix(_SLICE).rpartition("-")[2].replace("_", "-")
    uid = directory.removeprefix(POD_PREFIX)
    return uid if uid and uid != directory else None


def classes_of_pods(facts: NodeFacts) -> tuple[str, ...]:
    """The cgroups right below which pods have theirs: kubepods, burstable, besteffort."""
    return tuple(qos_cgroup_name(qos, facts) for qos in QosClass)
