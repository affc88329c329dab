"""Builds the mounts and block devices of one container (pods.md 6.2, 6.8). Reads and writes no file."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from bus.messages.device_plugins import DeviceMount
from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.cri.message import message
from services.podsync.core.cri.user_namespaces import Mappings, id_mappings
from services.podsync.core.node.node_facts import NodeFacts
from shared.cri.interface import Message
from shared.model.objects import Object, annotations
from shared.podspec.exec_space import TooLongError
from shared.podspec.expansion import expand_strictly

ETC_HOSTS = "/etc/hosts"
MAX_PATH_BYTES = 4095  # the kernel's PATH_MAX without the final NUL
_PROPAGATION = {
    "HostToContainer": "PROPAGATION_HOST_TO_CONTAINER",
    "Bidirectional": "PROPAGATION_BIDIRECTIONAL",
}  # None, the default, is PROPAGATION_PRIVATE, the zero value


class MountedVolume(Struct, frozen=True, kw_only=True):
    """Has a pod's volume as it is mounted on the host."""

    host_path: str
    readonly: bool = False
    selinux_relabel: bool = False  # whether the volume supports labels and has none yet
    block: bool = False  # whether it is a device, to which `host_path` below pods/<uid>/volumeDevices links


def needs_etc_hosts(pod: Object, container: Object, pod_ips: Sequence[str]) -> bool:
    """Return whether the agent's own hosts file is mounted: no volumeMount targets /etc/hosts, and the pod's addresses
    are known or are the node's (pods.md 6.8.1)."""
    if any(mount.get("mountPath") == ETC_HOSTS for mount in container.get("volumeMounts") or ()):
        return False
    return bool((pod.get("spec") or {}).get("hostNetwork") or pod_ips)


def wanted_subpaths(container: Object, env: Mapping[str, str], image_volumes: Collection[str] = ()) -> dict[int, str]:
    """Return the expanded and checked path inside its volume by the index of the volumeMount, without mounts of a whole
    volume and those of `image_volumes` (names), whose subpaths the runtime finds. `env` is the container's final
    environment. Raises ContainerConfigError."""
    wanted = {}
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") in image_volumes:
            continue
        subpath = mount.get("subPath") or ""
        if mount.get("subPathExpr"):
            try:
                subpath, missing = expand_strictly(mount["subPathExpr"], env, longest=MAX_PATH_BYTES)
            except TooLongError:
                raise ContainerConfigError(
                    f"volumeMounts[{index}].subPathExpr is too long: the kernel takes {MAX_PATH_BYTES} bytes of a path"
                ) from None
            if missing:
                raise ContainerConfigError(f"missing value for {', '.join(missing)}")
        if not subpath:
            continue
        _check_subpath(subpath, shown=mount.get("subPathExpr") or subpath)
        wanted[index] = subpath
    return wanted


def _check_subpath(subpath: str, shown: str) -> None:
    """Raise ContainerConfigError for a path that leads out of its volume. The error has the path as in the spec
    (`shown`), because the expanded one may contain a value of a Secret."""
    if subpath.startswith("/"):
        raise ContainerConfigError(f"error SubPath `{shown}` must not be an absolute path")
    if ".." in subpath.split("/"):
        raise ContainerConfigError(f"unable to provision SubPath `{shown}`: must not contain '..'")


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
    image_volumes: Mapping[str, str] | None = None,
    mappings: Mappings | None = None,
    of_devices: Sequence[DeviceMount] = (),
) -> list[Message]:
    """Return the CRI Mounts: those of device plugins, volumeMounts in spec order, the hosts file, and the
    termination-message file. `image_volumes`: volume name -> reference of its image as pulled. `mappings`: ids of the
    pod's user namespace, which every mount has. Raises ContainerConfigError."""
    images = {str(v.get("name")): v["image"] for v in (pod.get("spec") or {}).get("volumes") or () if v.get("image")}
    mounts = [message(container_path=m.container_path, host_path=m.host_path, readonly=m.read_only) for m in of_devices]
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if (name := mount.get("name")) in images:
            mounts.append(_image_mount(pod, container, mount, images[name], (image_volumes or {}).get(name), facts))
        else:
            mounts.append(_volume_mount(container, index, mount, facts, volumes, subpaths))
    relabel = facts.selinux_enabled
    if etc_hosts_path and needs_etc_hosts(pod, container, pod_ips):
        mounts.append(message(container_path=ETC_HOSTS, host_path=etc_hosts_path, selinux_relabel=relabel))
    inside = container.get("terminationMessagePath")
    if inside and termination_path:
        mounts.append(message(container_path=inside, host_path=termination_path, selinux_relabel=relabel))
    if mappings is None:
        return mounts
    ids = {"uidMappings": id_mappings(mappings.uids), "gidMappings": id_mappings(mappings.gids)}
    return [{**mount, **ids} for mount in mounts]


def block_devices(container: Object, volumes: Mapping[str, MountedVolume]) -> list[Message]:
    """Return the CRI Devices of volumeDevices, in spec order. Raises ContainerConfigError."""
    devices = []
    for device in container.get("volumeDevices") or ():
        name, inside = device.get("name") or "", device.get("devicePath") or ""
        if not inside.startswith("/"):
            raise ContainerConfigError(f"error DevicePath `{inside}` must be an absolute path")
        volume = volumes.get(name)
        if volume is None or not volume.block:
            raise ContainerConfigError(f'cannot find volume "{name}" to pass into container "{container.get("name")}"')
        permissions = "r" if volume.readonly else "mrw"
        devices.append(message(container_path=inside, host_path=volume.host_path, permissions=permissions))
    return devices


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
    if volume is None or volume.block:
        raise _missing(name, container)
    has_subpath = bool(mount.get("subPath") or mount.get("subPathExpr"))
    if has_subpath and index not in subpaths:
        raise ContainerConfigError(
            f'failed to prepare subPath for volumeMount "{name}" of container "{container.get("name")}"'
        )
    return message(
        container_path=_inside(mount),
        host_path=subpaths[index] if has_subpath else volume.host_path,
        readonly=bool(mount.get("readOnly")) or volume.readonly,
        selinux_relabel=volume.selinux_relabel and facts.selinux_enabled,
        propagation=_PROPAGATION.get(mount.get("mountPropagation") or "", ""),
        recursive_read_only=_recursive_read_only(mount, facts),
        mount_options=[*(mount.get("bindMountOptions") or ())] if facts.bind_mount_options else [],
    )


def _image_mount(
    pod: Object, container: Object, mount: dict[str, Any], image: dict[str, Any], pulled: str | None, facts: NodeFacts
) -> Message:
    """Return the mount of an image as a volume, which is read-only. The runtime finds its files, so that it has no host
    path."""
    if not pulled:
        raise _missing(mount.get("name") or "", container)
    subpath = mount.get("subPath") or ""
    _check_subpath(subpath, shown=subpath)
    return message(
        container_path=_inside(mount),
        readonly=True,
        propagation=_PROPAGATION.get(mount.get("mountPropagation") or "", ""),
        recursive_read_only=_recursive_read_only(mount, facts),
        image=message(image=pulled, user_specified_image=image.get("reference"), annotations=annotations(pod)),
        image_sub_path=subpath,
    )


def _inside(mount: dict[str, Any]) -> str:
    path = mount.get("mountPath") or ""
    return path if path.startswith("/") else f"/{path}"


def _missing(name: str, container: Object) -> ContainerConfigError:
    return ContainerConfigError(f'cannot find volume "{name}" to mount into container "{container.get("name")}"')


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
