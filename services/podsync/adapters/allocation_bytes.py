"""Converts a device plugin's answer to Allocate to the bytes that the Go kubelet has in its checkpoint, and back."""

import logging

from bus.messages.device_plugins import AllocatedDevices, DeviceMount, DeviceNode
from shared.plugin_grpc.connection import PluginCallError, decoded
from shared.plugin_grpc.device_plugin_pb2 import CDIDevice, ContainerAllocateResponse, DeviceSpec, Mount

log = logging.getLogger(__name__)


def read_answer(content: bytes) -> AllocatedDevices | None:
    """Return the answer that the bytes hold; None, with a line in the log, where they hold none."""
    try:
        found = decoded(content, ContainerAllocateResponse, "Allocate")
    except PluginCallError:
        log.warning("an answer of a device plugin in the checkpoint of devices is damaged: the plugin is asked again")
        return None
    return AllocatedDevices(
        envs=dict(found.envs),
        mounts=tuple(
            DeviceMount(container_path=each.container_path, host_path=each.host_path, read_only=each.read_only)
            for each in found.mounts
        ),
        devices=tuple(
            DeviceNode(container_path=each.container_path, host_path=each.host_path, permissions=each.permissions)
            for each in found.devices
        ),
        annotations=dict(found.annotations),
        cdi_devices=tuple(each.name for each in found.cdi_devices),
    )


def write_answer(answer: AllocatedDevices) -> bytes:
    """Return the answer as bytes; equal answers have equal bytes."""
    message = ContainerAllocateResponse(
        envs=answer.envs,
        mounts=[
            Mount(container_path=each.container_path, host_path=each.host_path, read_only=each.read_only)
            for each in answer.mounts
        ],
        devices=[
            DeviceSpec(container_path=each.container_path, host_path=each.host_path, permissions=each.permissions)
            for each in answer.devices
        ],
        annotations=answer.annotations,
        cdi_devices=[CDIDevice(name=name) for name in answer.cdi_devices],
    )
    return bytes(message.SerializeToString(deterministic=True))
