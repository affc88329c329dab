"""Knows the names of sysctls, and which namespace of a pod each of them belongs to (pods.md 3.4). Pure."""

from enum import StrEnum


class SysctlNamespace(StrEnum):
    """The namespace of the kernel that has a sysctl."""

    NET = "Net"
    IPC = "IPC"
    UTS = "UTS"
    USER = "User"


_OF_IPC = frozenset(
    f"kernel.{name}" for name in ("sem", "shmall", "shmmax", "shmmni", "shm_rmid_forced", "msgmax", "msgmnb", "msgmni")
)
_PREFIXES = {"net.": SysctlNamespace.NET, "fs.mqueue.": SysctlNamespace.IPC, "user.": SysctlNamespace.USER}


def normalised(name: str) -> str:
    """Return the name with dots as separators; in `net/ipv4/conf/eth0.1/x` the dots become slashes."""
    first = next((c for c in name if c in "./"), ".")
    return name if first == "." else name.translate(str.maketrans("./", "/."))


def namespace_of(name: str) -> SysctlNamespace | None:
    """Return the namespace of a normalised name; None = it is a sysctl of the whole node."""
    if name in _OF_IPC:
        return SysctlNamespace.IPC
    if name == "kernel.domainname":
        return SysctlNamespace.UTS
    return next((space for prefix, space in _PREFIXES.items() if name.startswith(prefix)), None)
