"""Forms the answers of the PodResources API in both versions. No resource manager runs, so nothing is assigned to a
container."""

from collections.abc import Iterable
from typing import Any

from services.server.core.pods.pod_resources import PodEntry
from shared.plugin_grpc import pod_resources_v1_pb2 as v1
from shared.plugin_grpc import pod_resources_v1alpha1_pb2 as v1alpha1

V1, V1ALPHA1 = "v1", "v1alpha1"
LIST = {V1: v1.ListPodResourcesRequest, V1ALPHA1: v1alpha1.ListPodResourcesRequest}
GET, GET_ALLOCATABLE = v1.GetPodResourcesRequest, v1.AllocatableResourcesRequest


def list_answer(version: str, pods: Iterable[PodEntry]) -> Any:
    """Return the answer to List for these pods."""
    messages = v1 if version == V1 else v1alpha1
    return messages.ListPodResourcesResponse(pod_resources=[_pod(messages, pod) for pod in pods])


def get_answer(pod: PodEntry) -> Any:
    """Return the answer to Get for this pod."""
    return v1.GetPodResourcesResponse(pod_resources=_pod(v1, pod))


def allocatable_answer() -> Any:
    """Return the answer to GetAllocatableResources, which has no exclusive CPUs, memory blocks or devices."""
    return v1.AllocatableResourcesResponse()


def _pod(messages: Any, pod: PodEntry) -> Any:
    containers = [messages.ContainerResources(name=name) for name in pod.containers]
    return messages.PodResources(name=pod.name, namespace=pod.namespace, containers=containers)
