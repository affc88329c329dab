"""Has the kernel settings that a kubelet gives its machine (node.md 4.8), and reads which ones the machine has.

Decides which settings differ. Writes nothing: that is the work of bootstrap.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

SYSCTLS = "proc/sys"  # below the root
KUBELET_SETTINGS: Mapping[str, int] = {  # by the path below /proc/sys
    "vm/overcommit_memory": 1,  # the kernel promises memory without a limit: those of pods are in their cgroups
    "vm/panic_on_oom": 0,  # without memory a process ends, and not the machine
    "kernel/panic": 10,  # seconds after a panic until the machine boots again; 0 = it does not
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
_ALL_IDS = ["0", "0", "4294967295"]  # the mapping of the first user namespace


def read_kernel_settings(root: str | Path = "/") -> dict[str, int]:
    """Return the values of KUBELET_SETTINGS on this machine. One that the kernel does not have, or that cannot be read,
    is left out."""
    found = {}
    for setting in KUBELET_SETTINGS:
        try:
            found[setting] = int((Path(root) / SYSCTLS / setting).read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
    return found


def differing_settings(values: Mapping[str, int]) -> dict[str, int]:
    """Return those of the values that a kubelet would change, in the order of KUBELET_SETTINGS."""
    return {name: values[name] for name, wanted in KUBELET_SETTINGS.items() if values.get(name, wanted) != wanted}


def sysctl_name(setting: str) -> str:
    """Return the name as the command `sysctl` has it: `vm.overcommit_memory`."""
    return setting.replace("/", ".")


def assignments(settings: Iterable[str]) -> str:
    """Return what `sysctl -w` takes to give these settings the values of a kubelet."""
    return " ".join(f"{sysctl_name(setting)}={KUBELET_SETTINGS[setting]}" for setting in settings)


def in_user_namespace(root: str | Path = "/") -> bool:
    """Return whether this process is in a user namespace of its own, whose root may not change the kernel's
    settings."""
    try:
        first = (Path(root) / "proc/self/uid_map").read_text(encoding="ascii").splitlines()[:1]
    except OSError:
        return False
    return bool(first) and first[0].split() != _ALL_IDS
