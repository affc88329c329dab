"""Decides which sysctls a pod may set (pods.md 3.4). Pure."""

from collections.abc import Iterable

from shared.model.objects import Object
from shared.model.sysctls import SysctlNamespace, namespace_of, normalised
from shared.version import is_since

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
_SAFE_SINCE_1_37 = {"net.ipv4.tcp_slow_start_after_idle": (4, 15), "net.ipv4.tcp_notsent_lowat": (4, 6)}
_PODS_MAY_HAVE = (SysctlNamespace.NET, SysctlNamespace.IPC)


def refusal(pod: Object, kernel: tuple[int, int], unsafe: Iterable[str], release: str) -> str:
    """Return the kubelet's message for the first sysctl that may not be set, "" = all may. `unsafe`: what the
    configuration allows beyond the safe ones, exact names or prefixes ending in `*`; `release`: one of RELEASES."""
    spec = pod.get("spec") or {}
    allowed = [normalised(pattern) for pattern in unsafe]
    for entry in (spec.get("securityContext") or {}).get("sysctls") or ():
        name = normalised(str(entry.get("name") or ""))
        space = namespace_of(name)
        if space not in _PODS_MAY_HAVE or not (
            _is_safe(name, kernel, release) or any(_fits(name, pattern) for pattern in allowed)
        ):
            return f'forbidden sysctl: "{name}" not allowlisted'
        if spec.get("hostNetwork" if space is SysctlNamespace.NET else "hostIPC"):
            return f'forbidden sysctl: "{name}" not allowed with host {space} enabled'
    return ""


def _is_safe(name: str, kernel: tuple[int, int], release: str) -> bool:
    safe = {**_SAFE, **_SAFE_SINCE_1_37} if is_since(release, "1.37") else _SAFE
    return name in safe and kernel >= safe[name]


def _fits(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
