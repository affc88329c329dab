"""Docker's answers as CRI's statuses and list entries. Pure; each function returns None for what is not of a pod."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from cri_api.v1 import api_pb2

from services.dockershim.core.identity import (
    IMAGE,
    LOG_PATH,
    SANDBOX_ID,
    Identity,
    parse_name,
    split_labels,
)

Inspected = Mapping[str, Any]  # GET /containers/ID/json
Listed = Mapping[str, Any]  # an entry of GET /containers/json

_NODE, _POD, _CONTAINER = api_pb2.NODE, api_pb2.POD, api_pb2.CONTAINER
_NANOSECONDS = 1_000_000_000


def nanoseconds_of(text: str) -> int:
    """Return a time of Docker's (RFC 3339, nine digits at most) since the epoch; 0 for Go's zero time and garbage."""
    seconds, _, fraction = text.rstrip("Z").partition(".")
    zone = "Z"
    for sign in "+-":
        if sign in fraction:
            fraction, _, offset = fraction.partition(sign)
            zone = sign + offset
    if not text or text.startswith("0001-"):
        return 0
    try:
        if not fraction and not text.endswith("Z"):
            whole = datetime.fromisoformat(text)
        else:
            whole = datetime.fromisoformat(seconds + zone)
        return int(whole.timestamp()) * _NANOSECONDS + int((fraction + "0" * 9)[:9])
    except ValueError:
        return 0


def is_running(inspected: Inspected) -> bool:
    """Return whether the container has a process."""
    return bool(inspected["State"]["Running"])


def identity_of(inspected: Inspected) -> Identity | None:
    """Return whose container this is."""
    return parse_name(str(inspected.get("Name", "")))


def identity_of_listed(listed: Listed) -> Identity | None:
    """Return whose container this is: of the names that other containers' links add, the one that parses."""
    return next((identity for name in listed.get("Names") or () if (identity := parse_name(name))), None)


def state_of(inspected: Inspected) -> "api_pb2.ContainerState.ValueType":
    """Return the CRI state of a container. One whose start failed has ended, although it never ran."""
    state = inspected["State"]
    if state["Running"]:
        return api_pb2.CONTAINER_RUNNING
    if state["Status"] == "created" and not state["ExitCode"]:
        return api_pb2.CONTAINER_CREATED
    return api_pb2.CONTAINER_EXITED


def container_entry(listed: Listed, failed: bool) -> Any:
    """Return the entry of ListContainers. `failed`: whether the start of a container in state created failed."""
    identity = identity_of_listed(listed)
    labels = listed.get("Labels") or {}
    if identity is None or not identity.container or SANDBOX_ID not in labels:
        return None
    state = (
        api_pb2.CONTAINER_RUNNING
        if listed["State"] in ("running", "paused", "restarting")
        else (api_pb2.CONTAINER_CREATED if listed["State"] == "created" and not failed else api_pb2.CONTAINER_EXITED)
    )
    kept, annotations = split_labels(labels)
    return api_pb2.Container(
        id=listed["Id"],
        pod_sandbox_id=labels[SANDBOX_ID],
        metadata=api_pb2.ContainerMetadata(name=identity.container, attempt=identity.attempt),
        image=api_pb2.ImageSpec(image=labels.get(IMAGE) or listed["Image"]),
        image_ref=listed["ImageID"],
        image_id=listed["ImageID"],
        state=state,
        created_at=int(listed["Created"]) * _NANOSECONDS,
        labels=kept,
        annotations=annotations,
    )


def sandbox_entry(listed: Listed, has_network: bool) -> Any:
    """Return the entry of ListPodSandbox. `has_network`: whether its network was set up."""
    identity = identity_of_listed(listed)
    if identity is None or identity.container:
        return None
    ready = listed["State"] == "running" and has_network
    kept, annotations = split_labels(listed.get("Labels") or {})
    return api_pb2.PodSandbox(
        id=listed["Id"],
        metadata=_metadata(identity),
        state=api_pb2.SANDBOX_READY if ready else api_pb2.SANDBOX_NOTREADY,
        created_at=int(listed["Created"]) * _NANOSECONDS,
        labels=kept,
        annotations=annotations,
        runtime_handler="",
    )


def sandbox_status(inspected: Inspected, addresses: Sequence[str], has_network: bool) -> Any:
    """Return the PodSandboxStatus; `addresses` are those of the network, the first one first."""
    identity = identity_of(inspected)
    if identity is None or identity.container:
        return None
    kept, annotations = split_labels(inspected["Config"]["Labels"] or {})
    modes = inspected["HostConfig"]
    ready = is_running(inspected) and has_network
    status = api_pb2.PodSandboxStatus(
        id=inspected["Id"],
        metadata=_metadata(identity),
        state=api_pb2.SANDBOX_READY if ready else api_pb2.SANDBOX_NOTREADY,
        created_at=nanoseconds_of(inspected["Created"]),
        labels=kept,
        annotations=annotations,
    )
    options = status.linux.namespaces.options
    options.network = _NODE if modes["NetworkMode"] == "host" else _POD
    options.ipc = _NODE if modes["IpcMode"] == "host" else _POD
    options.pid = _NODE if modes["PidMode"] == "host" else _CONTAINER
    status.network.SetInParent()
    if addresses:
        status.network.ip = addresses[0]
        for address in addresses[1:]:
            status.network.additional_ips.add(ip=address)
    return status


def container_status(inspected: Inspected, image: Mapping[str, Any]) -> Any:
    """Return the ContainerStatus. `image`: the inspected image, empty where it is gone. As other runtimes do, it shows
    a name of the image, and a digest of it, else its id."""
    identity = identity_of(inspected)
    if identity is None or not identity.container:
        return None
    labels = inspected["Config"]["Labels"] or {}
    state, created = inspected["State"], nanoseconds_of(inspected["Created"])
    kept, annotations = split_labels(labels)
    number = state_of(inspected)
    shown = image_message(image, "", "")
    status = api_pb2.ContainerStatus(
        id=inspected["Id"],
        metadata=api_pb2.ContainerMetadata(name=identity.container, attempt=identity.attempt),
        state=number,
        created_at=created,
        started_at=nanoseconds_of(state["StartedAt"]),
        image=api_pb2.ImageSpec(image=next(iter(shown.repo_tags), labels.get(IMAGE) or inspected["Config"]["Image"])),
        image_ref=next(iter(shown.repo_digests), inspected["Image"]),
        image_id=inspected["Image"],
        labels=kept,
        annotations=annotations,
        log_path=labels.get(LOG_PATH, ""),
    )
    if number == api_pb2.CONTAINER_EXITED:
        finished = nanoseconds_of(state["FinishedAt"])
        status.exit_code = state["ExitCode"]
        status.reason, status.message = _reason(state, ran=bool(finished)), state["Error"]
        status.finished_at = finished or created
        status.started_at = status.started_at or created
    for mount in inspected.get("Mounts") or ():
        status.mounts.add(container_path=mount["Destination"], host_path=mount["Source"], readonly=not mount["RW"])
    return status


def _reason(state: Mapping[str, Any], *, ran: bool) -> str:
    if not ran:
        return "ContainerCannotRun"
    if state["OOMKilled"]:
        return "OOMKilled"
    return "Error" if state["ExitCode"] else "Completed"


def verbose_info(inspected: Inspected) -> dict[str, str]:
    """Return what a verbose status says besides: the process, as containerd says it."""
    return {"info": json.dumps({"pid": inspected["State"]["Pid"]})}


def image_message(image: Mapping[str, Any], user: str, sandbox_image: str) -> Any:
    """Return the CRI Image of an inspected image; `user` is its configuration's. The image of sandboxes is pinned:
    nobody pulls it again."""
    message = api_pb2.Image(
        id=image.get("Id", ""),
        repo_tags=[tag for tag in image.get("RepoTags") or () if tag != "<none>:<none>"],
        repo_digests=[digest for digest in image.get("RepoDigests") or () if digest != "<none>@<none>"],
        size=max(image.get("VirtualSize") or 0, image.get("Size") or 0),
        pinned=sandbox_image in (*(image.get("RepoTags") or ()), *(image.get("RepoDigests") or ()), image.get("Id")),
    )
    name = user.partition(":")[0]
    if name.isascii() and name.isdecimal():
        message.uid.value = int(name)
    elif name:
        message.username = name
    return message


def _metadata(identity: Identity) -> Any:
    return api_pb2.PodSandboxMetadata(
        name=identity.name, uid=identity.uid, namespace=identity.namespace, attempt=identity.attempt
    )
