"""Reads and writes `kubelet_internal_checkpoint`: the devices of each container, and those that plugins registered.

Up to 1.19 the ids of an entry were a list without NUMA nodes; they are read as of no node, and never written.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from shared.go_checkpoints.checksums import (
    CheckpointError,
    Fault,
    corrupted,
    dump_checksum,
    load_checkpoint,
)
from shared.go_checkpoints.go_types import (
    Field,
    GoBytes,
    GoMap,
    GoNumber,
    GoSlice,
    GoStruct,
    GoText,
    GoType,
    GoValueError,
)

FILE_NAME = "kubelet_internal_checkpoint"
NO_NODE = -1  # the NUMA node of a device whose plugin names none


class ContainerDevices(Struct, frozen=True, kw_only=True):
    """Has the devices of one resource that a container holds. `answer`: the plugin's ContainerAllocateResponse, as the
    bytes of its protobuf."""

    pod_uid: str
    container: str
    resource: str
    devices: Mapping[int, tuple[str, ...]]  # ids by NUMA node
    answer: bytes | None = None


class DeviceState(Struct, frozen=True, kw_only=True):
    """Has the content of the file. `boot_id`: of the machine when it was written; newer kubelets know it."""

    allocated: tuple[ContainerDevices, ...] = ()
    registered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # ids by resource
    boot_id: str = ""


_IDS = GoSlice("[]string", GoText())
_REGISTERED = GoMap("map[string][]string", _IDS)


def _data(ids: GoType) -> GoStruct:
    fields = (
        Field("PodUID", GoText(), "PodUID"),
        Field("ContainerName", GoText(), "ContainerName"),
        Field("ResourceName", GoText(), "ResourceName"),
        Field("DeviceIDs", ids, "DeviceIDs"),
        Field("AllocResp", GoBytes(), "AllocResp"),
    )
    entries = GoSlice("[]checkpoint.PodDevicesEntry", GoStruct("checkpoint.PodDevicesEntry", fields))
    return GoStruct(
        "checkpoint.checkpointData",
        (
            Field("PodDeviceEntries", entries, "PodDeviceEntries"),
            Field("RegisteredDevices", _REGISTERED, "RegisteredDevices"),
        ),
    )


_DATA = _data(GoMap("checkpoint.DevicesPerNUMA", _IDS, numbered=True))
_DATA_1_19 = _data(_IDS)
_FILE = GoStruct(
    "checkpoint.Data",
    (
        Field("Data", _DATA, "Data"),
        Field("Checksum", GoNumber("checksum.Checksum"), "Checksum"),
        Field("BootID", GoText(), "BootID", omit_empty=True),
    ),
)


def read_device_state(content: bytes) -> DeviceState:
    """Return what the file says. Raises CheckpointError."""
    raw = load_checkpoint(content)
    try:
        checksum = GoNumber("checksum.Checksum", "uint32").from_json(raw.get("Checksum"), "Checksum")
        boot_id = GoText().from_json(raw.get("BootID"), "BootID")
        value, dump = _read_data(raw.get("Data"))
    except GoValueError as error:
        raise CheckpointError(Fault.UNKNOWN_FORM, str(error)) from None
    if checksum != dump_checksum(dump):
        raise corrupted()
    return DeviceState(
        allocated=tuple(_entry(one) for one in value["PodDeviceEntries"] or ()),
        registered={name: tuple(ids or ()) for name, ids in (value["RegisteredDevices"] or {}).items()},
        boot_id=boot_id,
    )


def _read_data(raw: Any) -> tuple[dict[str, Any], str]:
    """Return the data and its dump. Raises GoValueError."""
    try:
        value = _DATA.from_json(raw, "Data")
        return value, _DATA.dump(value)
    except GoValueError as error:
        try:
            value = _DATA_1_19.from_json(raw, "Data")
        except GoValueError:
            raise error from None
        return value, _DATA_1_19.dump(value)


def _entry(one: Mapping[str, Any]) -> ContainerDevices:
    ids = one["DeviceIDs"] or {}
    by_node = {NO_NODE: ids} if isinstance(ids, list) else ids
    return ContainerDevices(
        pod_uid=one["PodUID"],
        container=one["ContainerName"],
        resource=one["ResourceName"],
        devices={node: tuple(listed or ()) for node, listed in by_node.items()},
        answer=one["AllocResp"],
    )


def write_device_state(state: DeviceState) -> bytes:
    """Return the content of the file."""
    entries = [
        {
            "PodUID": one.pod_uid,
            "ContainerName": one.container,
            "ResourceName": one.resource,
            "DeviceIDs": {node: list(ids) for node, ids in one.devices.items()},
            "AllocResp": one.answer,
        }
        for one in state.allocated
    ]
    data = {
        "PodDeviceEntries": entries or None,
        "RegisteredDevices": {name: list(ids) for name, ids in state.registered.items()},
    }
    value = {"Data": data, "Checksum": dump_checksum(_DATA.dump(data)), "BootID": state.boot_id}
    return _FILE.json_text(value).encode()
