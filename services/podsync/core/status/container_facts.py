"""Computes what statuses show of the spec alone: mounts and resources of containers (pods.md 9.2), resources of the pod
(pods.md 9.4). Computed once per version of a pod. sources accepts no pod with a nameless container or mount."""

from typing import Any

from msgspec import Struct

from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.podspec.containers import every_container
from shared.podspec.qos import qos_class
from shared.podspec.resources import resource_list, status_resources, written

Json = dict[str, Any]
_CONTAINERS = "containers"
_POD = "pod"


class ContainerFacts(Struct, frozen=True, kw_only=True):
    """Has what a container's status shows of its spec. `resources` are the allocated ones."""

    mounts: list[Json]
    recursive_mounts: list[Json]  # `mounts` where the runtime makes read-only mounts recursive
    resources: Json
    allocated: Json


def container_facts(tracked: TrackedPod) -> dict[str, ContainerFacts]:
    """Return the facts of containers of every kind, by name."""
    facts: dict[str, ContainerFacts] = _facts(tracked)[_CONTAINERS]
    return facts


def pod_facts(tracked: TrackedPod) -> Json:
    """Return qosClass, resources and allocatedResources of the pod's status."""
    facts: Json = _facts(tracked)[_POD]
    return facts


def _facts(tracked: TrackedPod) -> Json:
    shown = tracked.version.shown
    if not shown:
        pod = tracked.saved.pod
        of_containers = {spec["name"]: _of_container(spec) for _, spec in every_container(pod)}
        of_pod = {"qosClass": str(qos_class(pod)), **status_resources(pod)}
        shown.update({_CONTAINERS: of_containers, _POD: of_pod})
    return shown


def shown_resources(spec: Json) -> Json:
    """Return `resources` of a container's status for those of its spec."""
    resources: Json = {kind: written(resource_list(spec, kind)) for kind in ("limits", "requests")}
    resources["claims"] = (spec.get("resources") or {}).get("claims")
    return {kind: amounts for kind, amounts in resources.items() if amounts}


def _of_container(spec: Json) -> ContainerFacts:
    return ContainerFacts(
        mounts=[_mount(mount, ("Enabled",)) for mount in spec.get("volumeMounts") or ()],
        recursive_mounts=[_mount(mount, ("Enabled", "IfPossible")) for mount in spec.get("volumeMounts") or ()],
        resources=shown_resources(spec),
        allocated=written(resource_list(spec, "requests")),
    )


def _mount(mount: Json, recursive_modes: tuple[str, ...]) -> Json:
    shown: Json = {"name": mount["name"], "mountPath": mount["mountPath"]}
    if mount.get("readOnly"):
        recursive = "Enabled" if mount.get("recursiveReadOnly") in recursive_modes else "Disabled"
        shown |= {"readOnly": True, "recursiveReadOnly": recursive}
    return shown
