"""Computes the addresses of a pod for its status and environment: its own, at most one of each family, and its node's
(pods.md 9.4).
Pure; addresses are texts.
"""

import ipaddress
from collections.abc import Sequence
from typing import Any

from services.podsync.core.pod.tracked_pod import TrackedPod

Json = dict[str, Any]


def addresses(tracked: TrackedPod, node_ips: tuple[str, ...]) -> Json:
    """Return hostIP, hostIPs, podIP and podIPs, as far as they are known; `node_ips`: the node's, its primary one
    first."""
    shown: Json = {}
    if node_ips:
        shown |= {"hostIP": node_ips[0], "hostIPs": [{"ip": ip} for ip in node_ips]}
    if ips := pod_ips(tracked, node_ips):
        shown |= {"podIP": ips[0], "podIPs": [{"ip": ip} for ip in ips]}
    return shown


def pod_ips(tracked: TrackedPod, node_ips: tuple[str, ...]) -> list[str]:
    """Return the pod's own addresses, [] = not known yet; with hostNetwork they are the node's."""
    return _of_host_network(tracked, node_ips) if tracked.host_network else _of_sandbox(tracked, node_ips)


def family_mismatch(tracked: TrackedPod, node_ips: tuple[str, ...]) -> str:
    """Return the message of the HostIPsIPFamilyMismatch event where the host address changes its family; "" = it does
    not."""
    before = str(tracked.status.get("hostIP") or "")
    if not before or not node_ips or _is_v6(before) == _is_v6(node_ips[0]):
        return ""
    was, now = ("6", "4") if _is_v6(before) else ("4", "6")
    return (
        f"Kubelet detected an IPv{was} node IP ({before}), but the cloud provider selected an IPv{now} node IP "
        f"({node_ips[0]}); pass an explicit `--node-ip` to kubelet to fix this."
    )


def _of_host_network(tracked: TrackedPod, node_ips: tuple[str, ...]) -> list[str]:
    """Return the node's addresses. Once shown they stay, but an address of a second family is added."""
    before = _last_known(tracked)
    if not before:
        return list(node_ips)
    if len(before) == 1 and len(node_ips) == 2 and _is_v6(node_ips[1]) != _is_v6(before[0]):
        return [before[0], node_ips[1]]
    return before


def _of_sandbox(tracked: TrackedPod, node_ips: tuple[str, ...]) -> list[str]:
    for sandbox in tracked.ready_sandboxes:
        if found := one_per_family(sandbox.ips, node_ips):
            return found
    return _last_known(tracked)  # the addresses stay after the sandbox has stopped


def _last_known(tracked: TrackedPod) -> list[str]:
    return [entry["ip"] for entry in tracked.status.get("podIPs") or []]


def one_per_family(ips: Sequence[str], node_ips: Sequence[str]) -> list[str]:
    """Return the first address of each family as canonical text, the family of the node's first address (else IPv4)
    first. Texts that are no addresses are left out."""
    v6_first = bool(node_ips) and _is_v6(node_ips[0])
    if len(ips) == 1 and ips[0].count(".") == 3:
        return list(ips)
    found: dict[bool, str] = {}
    for text in ips:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        found.setdefault(address.version == 6, str(address))
    return [found[v6] for v6 in (v6_first, not v6_first) if v6 in found]


def _is_v6(ip: str) -> bool:
    return ":" in ip
