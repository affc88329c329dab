"""Makes cgroups and writes their values, on v1, hybrid and v2 hosts (node.md 4.3).

Decides no value and no file (`core` does). Blocks for microseconds to milliseconds: call it in a thread.
"""

import errno
from collections.abc import Iterable
from pathlib import Path

from services.podsync.core.cgroups.cgroup_files import FileText, v1_files, v2_files
from services.podsync.core.cgroups.pod_cgroup import CgroupValues
from shared.host.cgroup_layout import Hierarchies, controllers_of


def make(hierarchies: Hierarchies, name: str) -> None:
    """Make the cgroup and its missing ancestors, so that processes can enter it. Raises OSError."""
    relative = name.strip("/")
    if hierarchies.unified is not None:
        _make_with_controllers(hierarchies.unified, relative)
        return
    cpuset = hierarchies.by_controller.get("cpuset")
    for root in hierarchies.roots():
        _make(root, relative, with_cpus=root == cpuset)


def write(hierarchies: Hierarchies, name: str, values: CgroupValues, page_sizes: Iterable[str]) -> None:
    """Write the values, and no limit on a page size as 0. Raises OSError that names the file that refused, or
    states that the kernel took another number."""
    relative, sizes = name.strip("/"), tuple(page_sizes) if hierarchies.has("hugetlb") else ()
    to_files = v1_files if hierarchies.unified is None else v2_files
    # The kernel may be built without these controllers. Without cpuset a kubelet starts on v2 only (node.md 4.1). No
    # value is lost then: a cgroup of ours always has all CPUs of the machine.
    optional = ("hugetlb", "pids") if hierarchies.unified is None else ("hugetlb", "pids", "cpuset")
    for file in to_files(values, sizes):
        if file.controller in optional and not hierarchies.has(file.controller):
            continue
        if hierarchies.unified is not None:
            directory = hierarchies.unified / relative
        elif file.controller in hierarchies.by_controller:
            directory = hierarchies.by_controller[file.controller] / relative
        else:
            raise OSError(f"cgroup controller {file.controller} is not mounted")
        _put(directory, file)


def _make_with_controllers(root: Path, relative: str) -> None:
    """Make the cgroup on v2 and enable every controller in each of its ancestors. The write of a value reports a
    controller that could not be enabled."""
    path, wanted = root, [f"+{controller}" for controller in sorted(controllers_of(root))]
    for part in relative.split("/"):
        control = path / "cgroup.subtree_control"
        try:
            control.write_text(" ".join(wanted))
        except OSError:  # one controller that cannot be enabled must not keep the others off
            for controller in wanted:
                try:
                    control.write_text(controller)
                except OSError:
                    continue
        path = path / part
        path.mkdir(mode=0o755, exist_ok=True)


def _make(root: Path, relative: str, *, with_cpus: bool) -> None:
    """Make the cgroup on v1 with its missing ancestors. In the tree of cpuset the CPUs and memory nodes are copied from
    the parent: without them no process can enter."""
    path = root / relative
    try:
        path.mkdir(0o755)
    except FileExistsError:
        if not path.is_dir():
            raise
    except FileNotFoundError:
        above = relative.rpartition("/")[0]
        if not above:
            raise
        _make(root, above, with_cpus=with_cpus)
        _make(root, relative, with_cpus=with_cpus)
        return
    for inherited in ("cpuset.cpus", "cpuset.mems") if with_cpus else ():
        if (path / inherited).exists():
            _copy_from_parent(path, inherited)


def _copy_from_parent(path: Path, inherited: str) -> str:
    """Return the cgroup's value; an empty one is first copied from the nearest ancestor that has one. A cgroup between
    them may be empty: another process made it so, or an earlier podsync was killed between the two steps."""
    file = path / inherited
    value = file.read_text().strip()
    if not value and (path.parent / inherited).exists():
        value = _copy_from_parent(path.parent, inherited)
        file.write_text(value)
    return value


def _put(directory: Path, file: FileText) -> None:
    path = directory / file.file
    try:
        if file.if_present and not path.exists():
            return
        path.write_text(file.text)
        taken = path.read_text().strip() if file.read_back else file.text
    except OSError as error:
        if error.errno == errno.EBUSY and file.controller == "memory":
            raise OSError(_too_full(directory, file)) from error
        raise OSError(f"cannot write {file.text!r} to {path}: {error.strerror}") from error
    if taken != file.text:
        raise OSError(f"cannot write {file.text!r} to {path}: the kernel made it {taken}")


def _too_full(directory: Path, file: FileText) -> str:
    """Return the error for a limit below the memory in use, which the kernel cannot free."""
    use = [_text(directory / f"memory.{name}usage_in_bytes") for name in ("", "max_")]
    return f"unable to set memory limit to {file.text} (current usage: {use[0]}, peak usage: {use[1]})"


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return "unknown"
