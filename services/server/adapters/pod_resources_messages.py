"""Forms the answers of the PodResources API in both versions. v1alpha1 has neither CPUs nor memory nor NUMA nodes nor
resource claims."""

from collections.abc import Iterable
from typing import Any

from bus.messages.podsync import NodeResources, NumaMemory
from services.server.core.pods.claim_resources import ClaimEntry
from services.server.core.pods.pod_resources import ContainerEntry, DeviceEntry, PodEntry, cpu_ids
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


def allocatable_answer(resources: NodeResources | None, devices: Iterable[DeviceEntry]) -> Any:
    """Return the answer to GetAllocatableResources; `resources` None = they are not known."""
    if resources is None:
        return v1.AllocatableResourcesResponse(devices=_devices(devices))
    return v1.AllocatableResourcesResponse(
        devices=_devices(devices), cpu_ids=cpu_ids(resources.exclusive_cpus), memory=_memory(resources.memory)
    )


def _pod(messages: Any, pod: PodEntry) -> Any:
    containers = [_container(messages, container, pod.namespace) for container in pod.containers]
    whole = {"cpu_ids": pod.cpus, "memory": _memory(pod.memory)} if messages is v1 else {}
    return messages.PodResources(name=pod.name, namespace=pod.namespace, containers=containers, **whole)


def _container(messages: Any, container: ContainerEntry, namespace: str) -> Any:
    if messages is v1alpha1:
        devices = [v1alpha1.ContainerDevices(resource_name=d.resource, device_ids=[d.id]) for d in container.devices]
        return v1alpha1.ContainerResources(name=container.name, devices=devices)
    return v1.ContainerResources(
        name=container.name,
        devices=_devices(container.devices),
        cpu_ids=container.cpus,
        memory=_memory(container.memory),
        dynamic_resources=[_claim(claim, namespace) for claim in container.claims],
    )


def _claim(claim: ClaimEntry, namespace: str) -> Any:
    devices = [
        v1.ClaimResource(
            cdi_devices=[v1.CDIDevice(name=name) for name in device.cdi_devices],
            driver_name=device.driver,
            pool_name=device.pool,
            device_name=device.device,
            share_id=device.share_id or None,
        )
        for device in claim.devices
    ]
    return v1.DynamicResource(claim_name=claim.claim, claim_namespace=namespace, claim_resources=devices)


def _devices(entries: Iterable[DeviceEntry]) -> list[Any]:
    """Return a message for each entry: the kubelet, too, has one for each NUMA node of each device."""
    return [
        v1.ContainerDevices(
            resource_name=entry.resource,
            device_ids=[entry.id],
            topology=None if entry.node is None else v1.TopologyInfo(nodes=[v1.NUMANode(ID=entry.node)]),
        )
        for entry in entries
    ]


def _memory(blocks: Iterable[NumaMemory]) -> list[Any]:
    return [
        v1.ContainerMemory(
            memory_type=block.kind,
            size=block.size,
            topology=v1.TopologyInfo(nodes=[v1.NUMANode(ID=node) for node in block.nodes]),
        )
        for block in blocks
    ]
