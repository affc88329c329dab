"""Decides which sysctls a pod may set (pods.md 3.4). Pure."""

from collections.abc import Iterable

from shared.model.objects import Object

_SAFE: dict[str, tuple[int, int]] = {  # name -> first kernel that has it in namespaces, (0, 0) = every kernel
    "kernel.shm_rmid_forced": (0, 0),
    "net.ipv4.ip_local_port_range": (0, 0),
    "net.ipv4.tcp_syncookies": (0, 0),
    "net.ipv4.ping_group_range": (0, 0),
    "net.ipv4.ip_unprivileged_port_start": (0, 0),
    "net.ipv4.ip_local_reserved_ports": (3, 16),
    "net.ipv4.tcp_keepalive_time": (4, 5),
    "net.ipv4.tcp_fin_timeout": (4, 6),
    "net.ipv4.tcp_keepalive_intvl": (4, 5),
    "net.ipv4.tcp_keepalive_probes": (4, 5),
    "net.ipv4.tcp_rmem": (4, 15),
    "net.ipv4.tcp_wmem": (4, 15),
}
_IPC = frozenset(
    f"kernel.{name}" for name in ("sem", "shmall", "shmmax", "shmmni", "shm_rmid_forced", "msgmax", "msgmnb", "msgmni")
)
_IPC_PREFIXES = ("fs.mqueue.",)


def normalised(name: str) -> str:
    """Return the name with dots as separators; in `net/ipv4/conf/eth0.1/x` the dots become slashes."""
    first = next((c for c in name if c in "./"), ".")
    return name if first == "." else name.translate(str.maketrans("./", "/."))


def refusal(pod: Object, kernel: tuple[int, int], unsafe: Iterable[str]) -> str:
    """Return the kubelet's message for the first sysctl that may not be set, "" = all may. `unsafe`: what the
    configuration allows beyond the safe ones, exact names or prefixes ending in `*`."""
    spec = pod.get("spec") or {}
    allowed = [normalised(pattern) for pattern in unsafe]
    for entry in (spec.get("securityContext") or {}).get("sysctls") or ():
        name = normalised(str(entry.get("name") or ""))
        space = _namespace(name)
        if not space or not (_is_safe(name, kernel) or any(_fits(name, pattern) for pattern in allowed)):
            return f'forbidden sysctl: "{name}" not allowlisted'
        if spec.get("hostNetwork" if space == "Net" else "hostIPC"):
            return f'forbidden sysctl: "{name}" not allowed with host {space} enabled'
    return ""


def _is_safe(name: str, kernel: tuple[int, int]) -> bool:
    return name in _SAFE and kernel >= _SAFE[name]


def _fits(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _namespace(name: str) -> str:
    if name.startswith("net."):
        return "Net"
    return "IPC" if name in _IPC or name.startswith(_IPC_PREFIXES) else ""
