"""Reads the cgroup of a process from the text of /proc/<pid>/cgroup, and names configured cgroups (node.md 4.8). Pure.
A name is the path below the mount points of the controllers, with either driver.
"""

import posixpath


def placement_name(configured: str) -> str:
    """Return the path of a configured cgroup, from the top and without `..`; "" where none is configured."""
    return posixpath.normpath(f"/{configured.lstrip('/')}") if configured else ""


def cgroup_of_process(cgroup_file: str, *, v2: bool) -> str:
    """Return the path of the cgroup in which a process is accounted; "" where CPU and memory are accounted in
    different ones, or it cannot be known. On v1 systemd's own hierarchy has the path even without accounting."""
    paths: dict[str, str] = {}
    for line in cgroup_file.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths |= dict.fromkeys(controllers.split(","), path)
    if v2:
        return paths.get("", "")
    cpu, memory = paths.get("cpu", ""), paths.get("memory", "")
    return paths.get("name=systemd", cpu) if cpu == memory else ""
