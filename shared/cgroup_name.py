"""The path of a cgroup as the two drivers write it (node.md 4.1). Pure.

`/kubepods/burstable/pod1a-2b` is, under systemd, the unit `kubepods-burstable-pod1a_2b.slice` in the slices above it.
"""

from collections.abc import Sequence

SYSTEMD, CGROUPFS = "systemd", "cgroupfs"  # drivers
SLICE = ".slice"


def cgroup_name(components: Sequence[str], driver: str) -> str:
    """The path of a cgroup below the controllers' mount points, with a leading /; `driver` is cgroupfs or systemd."""
    if driver != SYSTEMD:
        return "/" + "/".join(components)
    escaped = [component.replace("-", "_") for component in components]
    slices = ("-".join(escaped[: depth + 1]) + SLICE for depth in range(len(escaped)))
    return "/" + "/".join(slices)
