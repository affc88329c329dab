"""The path of a cgroup as the two drivers write it (node.md 4.1). Pure.

`/kubepods/burstable/pod1a-2b` is, under systemd, the unit `kubepods-burstable-pod1a_2b.slice` in the slices above it.
"""

from collections.abc import Sequence

SYSTEMD, CGROUPFS = "systemd", "cgroupfs"  # drivers
SLICE = ".slice"


def cgroup_name(components: Sequence[str], driver: str) -> str:
    """Return the path of a cgroup below the controllers' mount points, with a leading /; `driver` is cgroupfs or
    systemd.
    """
    if driver != SYSTEMD:
        return "/" + "/".join(components)
    escaped = [component.replace("-", "_") for component in components]
    slices = ("-".join(escaped[: depth + 1]) + SLICE for depth in range(len(escaped)))
    return "/" + "/".join(slices)


def is_cgroup_of_container(name: str, container_id: str) -> bool:
    """Return whether a runtime gives the cgroup of this container or sandbox this name, the last part of its path.
    CRI-O makes another cgroup with the same id for its process conmon, which does not belong to the container.
    """
    return container_id in name and "conmon" not in name


def cgroup_components(path: str, driver: str) -> list[str]:
    """Return the components of a cgroup that the configuration names by its path on the host, for `cgroup_name`. Of a
    slice the last part of the path is enough: its name has those of all slices above it.
    """
    parts = [part for part in path.split("/") if part]
    if driver != SYSTEMD or not parts:
        return parts
    return [part.replace("_", "-") for part in parts[-1].removesuffix(SLICE).split("-")]
