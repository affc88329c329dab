"""The containers of a pod by kind: regular, init, sidecar (an init container that restarts always), ephemeral."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from shared.model.objects import Object
from shared.podspec.resources import is_sidecar


class ContainerKind(StrEnum):
    """Which list of the spec a container is in; a sidecar is an init container of its own kind."""

    INIT = "init"
    SIDECAR = "sidecar"
    REGULAR = "regular"
    EPHEMERAL = "ephemeral"


MANY_ENTRIES = 300  # of lists in a pod, from which on its messages are made beside the event loop
_LISTS = ("env", "ports", "volumeMounts", "command", "args")
_FIELDS = {
    ContainerKind.INIT: "initContainers",
    ContainerKind.SIDECAR: "initContainers",
    ContainerKind.REGULAR: "containers",
    ContainerKind.EPHEMERAL: "ephemeralContainers",
}


def init_containers(pod: Object) -> list[Object]:
    """Return plain init containers and sidecars, in spec order."""
    return list((pod.get("spec") or {}).get("initContainers") or ())


def regular_containers(pod: Object) -> list[Object]:
    """spec.containers."""
    return list((pod.get("spec") or {}).get("containers") or ())


def ephemeral_containers(pod: Object) -> list[Object]:
    """spec.ephemeralContainers."""
    return list((pod.get("spec") or {}).get("ephemeralContainers") or ())


def init_kind(container: Mapping[str, Any]) -> ContainerKind:
    """Return the kind of an entry of spec.initContainers."""
    return ContainerKind.SIDECAR if is_sidecar(container) else ContainerKind.INIT


def every_container(pod: Object) -> Iterator[tuple[ContainerKind, Object]]:
    """All of them with their kind: init containers, then regular, then ephemeral ones, each in spec order."""
    for container in init_containers(pod):
        yield init_kind(container), container
    for container in regular_containers(pod):
        yield ContainerKind.REGULAR, container
    for container in ephemeral_containers(pod):
        yield ContainerKind.EPHEMERAL, container


def find_container(pod: Object, name: str) -> tuple[ContainerKind, Object] | None:
    """Return the container of this name, whatever its kind; None = the pod has none."""
    return next((found for found in every_container(pod) if found[1].get("name") == name), None)


def is_large(pod: Object) -> bool:
    """Return whether a message made of the pod takes more than a few milliseconds: because of its own lists, or because
    its environment includes that of other objects.
    """
    entries = len((pod.get("spec") or {}).get("volumes") or ())
    for _, container in every_container(pod):
        entries += 1 + sum(len(container.get(field) or ()) for field in _LISTS)
        if container.get("envFrom") or entries > MANY_ENTRIES:
            return True
    return entries > MANY_ENTRIES


def used_volumes(pod: Object) -> frozenset[str]:
    """Return the names of the volumes that some container mounts or has as a device; no other volume of a pod is set
    up.
    """
    # The fields of ephemeral containers are of any type.
    uses = (
        use
        for _, container in every_container(pod)
        for field in ("volumeMounts", "volumeDevices")
        if isinstance(listed := container.get(field), list)
        for use in listed
    )
    return frozenset(str(use["name"]) for use in uses if isinstance(use, dict) and use.get("name"))


def field_path(pod: Object, name: str) -> str:
    """Return the field path of an Event's involvedObject: `spec.initContainers{setup}`; "" for no container of the
    pod."""
    found = find_container(pod, name)
    return f"spec.{_FIELDS[found[0]]}{{{name}}}" if found else ""
