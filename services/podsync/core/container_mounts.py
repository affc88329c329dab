"""The mounts of one container (reference pods.md 6.8): which, in what order, how. Touches no file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.podsync.core.config_errors import ContainerConfigError
from services.podsync.core.message import message
from services.podsync.core.node_facts import NodeFacts
from shared.cri.interface import Message
from shared.model.objects import Object
from shared.podspec.expansion import expand_strictly

ETC_HOSTS = "/etc/hosts"
_PROPAGATION = {
    "HostToContainer": "PROPAGATION_HOST_TO_CONTAINER",
    "Bidirectional": "PROPAGATION_BIDIRECTIONAL",
}  # None, the default, is PROPAGATION_PRIVATE, the zero value


@dataclass(frozen=True, kw_only=True)
class MountedVolume:
    """A pod's volume as it stands on the host."""

    host_path: str
    readonly: bool = False
    selinux_relabel: bool = False  # the volume supports it and is not labelled yet


def needs_etc_hosts(pod: Object, container: Object, pod_ips: Sequence[str]) -> bool:
    """Whether the agent's own hosts file is mounted: no volumeMount targets /etc/hosts, and the pod's addresses are
    known or it has the node's (6.8.1)."""
    if any(mount.get("mountPath") == ETC_HOSTS for mount in container.get("volumeMounts") or ()):
        return False
    return bool((pod.get("spec") or {}).get("hostNetwork") or pod_ips)


def wanted_subpaths(container: Object, env: Mapping[str, str]) -> dict[int, str]:
    """Index of volumeMount -> path inside its volume, expanded and checked; mounts of a whole volume are not in it.

    `env` is the container's final environment. Raises ContainerConfigError."""
    wanted = {}
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        subpath = mount.get("subPath") or ""
        if mount.get("subPathExpr"):
            subpath, missing = expand_strictly(mount["subPathExpr"], env)
            if missing:
                raise ContainerConfigError(f"missing value for {', '.join(missing)}")
        if not subpath:
            continue
        if subpath.startswith("/"):
            raise ContainerConfigError(f"error SubPath `{subpath}` must not be an absolute path")
        if ".." in subpath.split("/"):
            raise ContainerConfigError(f"unable to provision SubPath `{subpath}`: must not contain '..'")
        wanted[index] = subpath
    return wanted


def container_mounts(
    pod: Object,
    container: Object,
    *,
    facts: NodeFacts,
    pod_ips: Sequence[str],
    volumes: Mapping[str, MountedVolume],
    subpaths: Mapping[int, str],
    etc_hosts_path: str,
    termination_path: str,
) -> list[Message]:
    """CRI Mounts: volumeMounts in spec order, then the hosts file, then the termination-message file.

    Raises ContainerConfigError."""
    image_volumes = {v.get("name") for v in (pod.get("spec") or {}).get("volumes") or () if "image" in v}
    mounts = []
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") in image_volumes:
            raise ContainerConfigError(f'volume "{mount["name"]}": image volumes are not supported yet')
        mounts.append(_volume_mount(container, index, mount, facts, volumes, subpaths))
    relabel = facts.selinux_enabled
    if etc_hosts_path and needs_etc_hosts(pod, container, pod_ips):
        mounts.append(message(container_path=ETC_HOSTS, host_path=etc_hosts_path, selinux_relabel=relabel))
    inside = container.get("terminationMessagePath")
    if inside and termination_path:
        mounts.append(message(container_path=inside, host_path=termination_path, selinux_relabel=relabel))
    return mounts


def _volume_mount(
    container: Object,
    index: int,
    mount: dict[str, Any],
    facts: NodeFacts,
    volumes: Mapping[str, MountedVolume],
    subpaths: Mapping[int, str],
) -> Message:
    name = mount.get("name") or ""
    volume = volumes.get(name)
    if volume is None:
        raise ContainerConfigError(f'cannot find volume "{name}" to mount into container "{container.get("name")}"')
    has_subpath = bool(mount.get("subPath") or mount.get("subPathExpr"))
    if has_subpath and index not in subpaths:
        raise ContainerConfigError(
            f'failed to prepare subPath for volumeMount "{name}" of container "{container.get("name")}"'
        )
    inside = mount.get("mountPath") or ""
    return message(
        container_path=inside if inside.startswith("/") else f"/{inside}",
        host_path=subpaths[index] if has_subpath else volume.host_path,
        readonly=bool(mount.get("readOnly")) or volume.readonly,
        selinux_relabel=volume.selinux_relabel and facts.selinux_enabled,
        propagation=_PROPAGATION.get(mount.get("mountPropagation") or "", ""),
        recursive_read_only=_recursive_read_only(mount, facts),
    )


def _recursive_read_only(mount: dict[str, Any], facts: NodeFacts) -> bool:
    wanted = mount.get("recursiveReadOnly") or "Disabled"
    if wanted == "Disabled":
        return False
    name = mount.get("name")
    if not mount.get("readOnly"):
        raise ContainerConfigError(f'volume "{name}" requested recursive read-only mode, but it is not read-only')
    if mount.get("mountPropagation") not in (None, "None"):
        raise ContainerConfigError(
            f'volume "{name}" requested recursive read-only mode, but it is not compatible with propagation '
            f'"{mount["mountPropagation"]}"'
        )
    if wanted == "Enabled" and not facts.recursive_read_only:
        raise ContainerConfigError(
            f'volume "{name}" requested recursive read-only mode, but it is not supported by the runtime'
        )
    return facts.recursive_read_only
