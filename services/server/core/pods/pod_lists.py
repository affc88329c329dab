"""Builds the lists of /pods and /runningpods/ from the streams (server.md 7). Encodes nothing."""

from collections.abc import Iterable, Mapping
from typing import Any

from bus.messages.podsync import PodStatus
from bus.messages.sources import ApiPodStatus, DesiredPod
from shared.model.objects import Object
from shared.model.runtime import ContainerState, RuntimePod, SandboxState


def pod_list(
    desired: Iterable[DesiredPod], statuses: Mapping[str, PodStatus], api_statuses: Mapping[str, ApiPodStatus]
) -> Object:
    """Return the PodList of /pods. An API pod has the version and status of the API server; others the computed
    status."""
    items = []
    for entry in desired:
        pod = {key: value for key, value in entry.pod.items() if key not in ("kind", "apiVersion", "status")}
        computed, known = statuses.get(entry.uid), api_statuses.get(entry.uid)
        shown = computed.status if computed is not None and entry.source != "api" else entry.pod.get("status")
        if known is not None:
            shown = known.status
            pod["metadata"] = {**pod["metadata"], "resourceVersion": known.resource_version}
        items.append({**pod, "status": shown or {}})
    return _listed(items)


def running_pod_list(pods: Iterable[RuntimePod]) -> Object:
    """Return the PodList of /runningpods/: pods with a ready sandbox or a running container, with their running
    containers.
    """
    items = []
    for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid)):
        containers: list[Any] = [
            {"name": container.name, "image": container.image, "resources": {}}
            for container in pod.containers
            if container.state is ContainerState.RUNNING
        ]
        if containers or any(sandbox.state is SandboxState.READY for sandbox in pod.sandboxes):
            metadata = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
            items.append({"metadata": metadata, "spec": {"containers": containers or None}, "status": {}})
    return _listed(items)


def find_pod(desired: Iterable[DesiredPod], namespace: str, name: str) -> DesiredPod | None:
    """Return the desired pod of that name, None when there is none."""
    for entry in desired:
        metadata = entry.pod.get("metadata", {})
        if metadata.get("name") == name and metadata.get("namespace") == namespace:
            return entry
    return None


def _listed(items: list[Object]) -> Object:
    # Go encodes an empty list it never appended to as null, and clients have come to meet that.
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items or None}
