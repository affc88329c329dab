"""CRI protobuf messages read into the agent's own terms, and dicts written into protobuf. No I/O, no decisions."""

import json
from collections.abc import Mapping
from typing import Any

from shared.cri.interface import (
    FilesystemFiles,
    HandlerFeatures,
    ImageStatus,
    Message,
    RuntimeCallError,
    RuntimeCondition,
    RuntimeEvent,
    RuntimeFeatures,
)
from shared.cri.newer_fields import MOUNT_OPTIONS, add_mount_options, takes_mount_options
from shared.model.runtime import Container, ContainerState, Sandbox, SandboxState
from shared.podspec.pod_source import SOURCE, STATIC_SOURCES

LABEL_POD_NAME = "io.kubernetes.pod.name"
LABEL_POD_NAMESPACE = "io.kubernetes.pod.namespace"
LABEL_POD_UID = "io.kubernetes.pod.uid"
LABEL_CONTAINER_NAME = "io.kubernetes.container.name"
ANNOTATION_HASH = "io.kubernetes.container.hash"
ANNOTATION_RESTART_COUNT = "io.kubernetes.container.restartCount"

_SANDBOX_STATES = (SandboxState.READY, SandboxState.NOTREADY)  # by CRI number
_CONTAINER_STATES = (ContainerState.CREATED, ContainerState.RUNNING, ContainerState.EXITED, ContainerState.UNKNOWN)
_NETWORK_NODE = 2  # NamespaceMode.NODE
_CGROUP_DRIVERS = ("systemd", "cgroupfs")  # by CRI number
_EVENT_TYPES = ("CREATED", "STARTED", "STOPPED", "DELETED")


def fill(method: str, message: Any, content: Message) -> Any:
    """`content` (proto field names) written into the protobuf `message`; raises RuntimeCallError InvalidArgument."""
    try:
        message.MergeFrom(type(message)(**content))
    except (TypeError, ValueError) as error:
        raise RuntimeCallError(method, "InvalidArgument", f"cannot be expressed in CRI: {error}") from None


def fill_container(method: str, message: Any, content: Message) -> None:
    """Write a ContainerConfig into `message` as `fill` does, with the fields that `newer_fields` has."""
    mounts = content.get("mounts") or ()
    fill(
        method,
        message,
        {
            **content,
            "mounts": [{name: value for name, value in mount.items() if name != MOUNT_OPTIONS} for mount in mounts],
        },
    )
    for written, mount in zip(message.mounts, mounts, strict=True):
        try:
            add_mount_options(written, mount.get(MOUNT_OPTIONS) or ())
        except ValueError as error:
            raise RuntimeCallError(method, "InvalidArgument", f"cannot be expressed in CRI: {error}") from None


def sandbox_state(number: int) -> SandboxState:
    """Return the state of a sandbox; a number we do not know counts as NOTREADY."""
    return _SANDBOX_STATES[number] if 0 <= number < len(_SANDBOX_STATES) else SandboxState.NOTREADY


def container_state(number: int) -> ContainerState:
    """Return the state of a container; a number we do not know is UNKNOWN."""
    return _CONTAINER_STATES[number] if 0 <= number < len(_CONTAINER_STATES) else ContainerState.UNKNOWN


def decode_sandbox(response: Any) -> Sandbox:
    """Return a verbose PodSandboxStatusResponse. The first IP is `network.ip`, the others `additional_ips`."""
    status = response.status
    network = status.network
    ips = [network.ip, *(extra.ip for extra in network.additional_ips)]
    source = status.annotations.get(SOURCE, "")
    return Sandbox(
        id=status.id,
        attempt=status.metadata.attempt,
        state=sandbox_state(status.state),
        created_at=status.created_at,
        host_network=status.linux.namespaces.options.network == _NETWORK_NODE,
        ips=tuple(ip for ip in ips if ip),
        network_reported=status.HasField("network"),
        runtime_handler=status.runtime_handler,
        pid=pid_of(response.info) if status.state == 0 else 0,
        static_source=source if source in STATIC_SOURCES else "",
    )


def decode_container(response: Any, sandbox_id: str, termination_message: str = "") -> Container:
    """Return a ContainerStatusResponse (verbose where the pid is wanted); the sandbox id is known to the list only."""
    status = response.status
    state = container_state(status.state)
    annotations: Mapping[str, str] = status.annotations
    user = None
    if status.HasField("user") and status.user.HasField("linux"):
        linux = status.user.linux
        user = (linux.uid, linux.gid, tuple(linux.supplemental_groups))
    return Container(
        id=status.id,
        name=status.labels.get(LABEL_CONTAINER_NAME) or status.metadata.name,
        attempt=status.metadata.attempt,
        sandbox_id=sandbox_id,
        state=state,
        created_at=status.created_at,
        started_at=status.started_at,
        finished_at=status.finished_at,
        exit_code=status.exit_code,
        reason=status.reason,
        message=status.message,
        termination_message=termination_message,
        image=status.image.image,
        image_id=status.image_ref,
        spec_hash=annotations.get(ANNOTATION_HASH, ""),
        restart_count=restart_count(annotations, status.metadata.attempt),
        log_path=status.log_path,
        user=user,
        pid=pid_of(response.info) if state is ContainerState.RUNNING else 0,
    )


def restart_count(annotations: Mapping[str, str], attempt: int) -> int:
    """Return the restart count written at creation, else (made by someone else, or garbled) the attempt."""
    text = annotations.get(ANNOTATION_RESTART_COUNT, "")
    return int(text) if text.isascii() and text.isdecimal() else attempt


def pid_of(info: Mapping[str, str]) -> int:
    """Return the pid in a verbose status: JSON under the key `info` (containerd, CRI-O). 0 = not reported."""
    try:
        pid = json.loads(info.get("info", "")).get("pid", 0)
    except (ValueError, AttributeError):
        return 0
    return pid if isinstance(pid, int) and pid > 0 else 0


def decode_conditions(response: Any) -> tuple[RuntimeCondition, ...]:
    """Return the conditions of a StatusResponse."""
    return tuple(
        RuntimeCondition(type=c.type, status=c.status, reason=c.reason, message=c.message)
        for c in response.status.conditions
    )


def decode_features(response: Any) -> RuntimeFeatures:
    """Return handlers and features of a StatusResponse; None where the runtime sent nothing of the kind."""
    handlers = sorted(
        (
            HandlerFeatures(
                name=handler.name,
                recursive_read_only_mounts=handler.features.recursive_read_only_mounts,
                user_namespaces=handler.features.user_namespaces,
            )
            for handler in response.runtime_handlers
        ),
        key=lambda handler: handler.name,
    )
    return RuntimeFeatures(
        handlers=tuple(handlers) or None,
        supplemental_groups_policy=(
            response.features.supplemental_groups_policy if response.HasField("features") else None
        ),
        mount_options=takes_mount_options(response.features),
    )


def decode_cgroup_driver(response: Any) -> str | None:
    """Return the driver of a RuntimeConfigResponse by its name in KubeletConfiguration; None = not set, or unknown."""
    if not response.HasField("linux"):
        return None
    number = response.linux.cgroup_driver
    return _CGROUP_DRIVERS[number] if 0 <= number < len(_CGROUP_DRIVERS) else None


def decode_image(response: Any) -> ImageStatus | None:
    """Return an ImageStatusResponse; None = the image is not here."""
    if not response.HasField("image") or not response.image.id:
        return None
    return image_of(response.image)


def image_of(image: Any) -> ImageStatus:
    """Return one Image message."""
    return ImageStatus(
        id=image.id,
        size=image.size,
        repo_tags=tuple(image.repo_tags),
        repo_digests=tuple(image.repo_digests),
        uid=image.uid.value if image.HasField("uid") else None,
        username=image.username,
        pinned=image.pinned,
    )


def decode_filesystem(usage: Any) -> FilesystemFiles:
    """Return one FilesystemUsage."""
    return FilesystemFiles(
        mountpoint=usage.fs_id.mountpoint,
        used=usage.used_bytes.value if usage.HasField("used_bytes") else None,
        inodes_used=usage.inodes_used.value if usage.HasField("inodes_used") else None,
    )


def decode_event(message: Any) -> RuntimeEvent:
    """Return a ContainerEventResponse. The pod UID is empty where the runtime sent neither sandbox nor container
    status.
    """
    uid = message.pod_sandbox_status.metadata.uid
    if not uid:
        uid = next((s.labels[LABEL_POD_UID] for s in message.containers_statuses if s.labels.get(LABEL_POD_UID)), "")
    number = message.container_event_type
    kind = _EVENT_TYPES[number] if 0 <= number < len(_EVENT_TYPES) else str(number)
    return RuntimeEvent(pod_uid=uid, container_id=message.container_id, type=kind)
