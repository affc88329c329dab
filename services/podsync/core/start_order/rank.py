"""Decides the rank of a pod in the order of starts, from its spec alone: static pods, then those that are critical for
the node, then what gives the node its network and its plugins, then all others; within each by priority.
"""

from enum import IntEnum

from msgspec import Struct

from shared.model.objects import Object

NODE_CRITICAL_PRIORITY = 2_000_001_000  # of the class system-node-critical (pods.md 3.5)
_NETWORK_DIRECTORIES = ("/etc/cni", "/opt/cni")  # of the network plugins' configuration and programs
_PLUGIN_DIRECTORIES = ("plugins_registry", "plugins", "device-plugins")  # below the root directory


class StartGroup(IntEnum):
    """Says what a pod is for the node; the smallest value starts first."""

    STATIC = 0
    NODE_CRITICAL = 1
    NETWORK = 2  # a network plugin, which pods with a network of their own need
    PLUGIN = 3  # a CSI driver, a device plugin or a driver of resource claims, which other pods need
    OTHER = 4


class Rank(Struct, frozen=True, order=True):
    """Has the place of a pod in the order; the smallest starts first."""

    group: StartGroup
    has_failed: bool  # its last sandbox could not be made; behind the others it keeps none from starting for ever
    descending_priority: int  # the negative of the pod's priority
    role: StartGroup = StartGroup.OTHER  # decides between critical pods of one priority: NETWORK, PLUGIN or OTHER


def rank_of(pod: Object, *, static: bool, root_dir: str, has_failed: bool = False) -> Rank:
    """Return the rank of a pod. `root_dir`: the kubelet's, below which plugins have their sockets; `has_failed`: no
    sandbox could be made at the last try."""
    spec = pod.get("spec") or {}
    priority = spec.get("priority")
    priority = priority if isinstance(priority, int) else 0
    role = _role(pod, root_dir)
    group = role
    if static:
        group = StartGroup.STATIC
    elif priority >= NODE_CRITICAL_PRIORITY:
        group = StartGroup.NODE_CRITICAL
    return Rank(group, has_failed, -priority, role)


def _role(pod: Object, root_dir: str) -> StartGroup:
    spec = pod.get("spec") or {}
    volumes = [volume["hostPath"] for volume in spec.get("volumes") or [] if volume.get("hostPath")]
    paths = [str(host_path.get("path") or "") for host_path in volumes]
    if spec.get("hostNetwork") and _any_below(paths, _NETWORK_DIRECTORIES):
        return StartGroup.NETWORK
    if _any_below(paths, tuple(f"{root_dir}/{name}" for name in _PLUGIN_DIRECTORIES)):
        return StartGroup.PLUGIN
    return StartGroup.OTHER


def _any_below(paths: list[str], directories: tuple[str, ...]) -> bool:
    """Return whether one of the paths is one of the directories, or below one."""
    return any(f"{path}/".startswith(f"{directory}/") for path in paths for directory in directories)
