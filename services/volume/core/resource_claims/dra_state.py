"""Reads and writes `dra_manager_state`: the prepared resource claims, with the devices that drivers named for them."""

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import orjson
from msgspec import Struct, field

from shared.go_checkpoints.checksums import CheckpointError, Fault, corrupted, load_checkpoint
from shared.go_checkpoints.go_types import Field, GoMap, GoSlice, GoStruct, GoText, GoValueError
from shared.podspec.go_json import go_json

FILE_NAME = "dra_manager_state"
_KIND, _VERSION = "DRACheckpoint", "checkpoint.dra.kubelet.k8s.io/v1"


class ClaimDevice(Struct, frozen=True, kw_only=True):
    """Has one device as its driver named it. None: the driver gave no list. `share_id` "": the device is not shared."""

    pool: str
    device: str
    share_id: str = ""
    requests: tuple[str, ...] | None = None
    cdi_ids: tuple[str, ...] | None = None


class PreparedClaim(Struct, frozen=True, kw_only=True):
    """Has one claim. `drivers`: all that have a part in it, also those that named no device (None)."""

    uid: str
    name: str
    namespace: str
    pod_uids: frozenset[str] = frozenset()
    drivers: Mapping[str, tuple[ClaimDevice, ...] | None] = field(default_factory=dict)


_STRINGS = GoSlice("[]string", GoText())
_DEVICE = GoStruct(
    "state.Device",
    (
        Field("PoolName", GoText(), "PoolName"),
        Field("DeviceName", GoText(), "DeviceName"),
        Field("ShareID", GoText(), "ShareID", omit_empty=True),
        Field("RequestNames", _STRINGS, "RequestNames"),
        Field("CDIDeviceIDs", _STRINGS, "CDIDeviceIDs"),
    ),
)
_DRIVER = GoStruct("state.DriverState", (Field("Devices", GoSlice("[]state.Device", _DEVICE), "Devices"),))
_CLAIM = GoStruct(
    "state.ClaimInfoState",
    (
        Field("ClaimUID", GoText(), "ClaimUID"),
        Field("ClaimName", GoText(), "ClaimName"),
        Field("Namespace", GoText(), "Namespace"),
        Field("PodUIDs", GoMap("sets.Set[string]", GoStruct("sets.Empty", ())), "PodUIDs"),
        Field("DriverState", GoMap("map[string]state.DriverState", _DRIVER), "DriverState"),
    ),
)
_CONTENT = GoStruct(
    "state.CheckpointData",
    (
        Field("Kind", GoText(), "kind"),
        Field("APIVersion", GoText(), "apiVersion"),
        Field("ClaimInfoStateList", GoSlice("state.ClaimInfoStateList", _CLAIM), "ClaimInfoStateList"),
    ),
)


def read_dra_state(content: bytes) -> tuple[PreparedClaim, ...]:
    """Return the claims in the file. Raises CheckpointError."""
    raw = load_checkpoint(content)
    text = raw.get("Data")
    if not isinstance(text, str):
        raise CheckpointError(Fault.UNKNOWN_FORM, "Data is not a string")
    if raw.get("Checksum") != crc32(text.encode("utf-8", "surrogatepass")):
        raise corrupted()
    try:
        value = _CONTENT.from_json(orjson.loads(text))
    except orjson.JSONDecodeError:
        raise CheckpointError(Fault.NOT_JSON, "Data is not JSON") from None
    except GoValueError as error:
        raise CheckpointError(Fault.UNKNOWN_FORM, str(error)) from None
    version = (value["kind"], value["apiVersion"])
    if version != (_KIND, _VERSION):
        what = f"holds a {version[0][:64]!a} of {version[1][:64]!a}, and only {_KIND} of {_VERSION} is known"
        raise CheckpointError(Fault.UNKNOWN_FORM, what)
    return tuple(_claim(one) for one in value["ClaimInfoStateList"] or ())


def write_dra_state(claims: tuple[PreparedClaim, ...]) -> bytes:
    """Return the content of the file."""
    listed = [
        {
            "ClaimUID": claim.uid,
            "ClaimName": claim.name,
            "Namespace": claim.namespace,
            "PodUIDs": {uid: {} for uid in claim.pod_uids},
            "DriverState": {driver: {"Devices": _written(devices)} for driver, devices in claim.drivers.items()},
        }
        for claim in claims
    ]
    value = {"kind": _KIND, "apiVersion": _VERSION, "ClaimInfoStateList": listed or None}
    text = _CONTENT.json_text(value)
    return go_json({"Data": text, "Checksum": crc32(text.encode())}).encode()


def _claim(one: Mapping[str, Any]) -> PreparedClaim:
    return PreparedClaim(
        uid=one["ClaimUID"],
        name=one["ClaimName"],
        namespace=one["Namespace"],
        pod_uids=frozenset(one["PodUIDs"] or ()),
        drivers={
            driver: None if state["Devices"] is None else tuple(_device(device) for device in state["Devices"])
            for driver, state in (one["DriverState"] or {}).items()
        },
    )


def _device(one: Mapping[str, Any]) -> ClaimDevice:
    return ClaimDevice(
        pool=one["PoolName"],
        device=one["DeviceName"],
        share_id=one["ShareID"],
        requests=None if one["RequestNames"] is None else tuple(one["RequestNames"]),
        cdi_ids=None if one["CDIDeviceIDs"] is None else tuple(one["CDIDeviceIDs"]),
    )


def _written(devices: tuple[ClaimDevice, ...] | None) -> list[dict[str, Any]] | None:
    if devices is None:
        return None
    return [
        {
            "PoolName": one.pool,
            "DeviceName": one.device,
            "ShareID": one.share_id,
            "RequestNames": None if one.requests is None else list(one.requests),
            "CDIDeviceIDs": None if one.cdi_ids is None else list(one.cdi_ids),
        }
        for one in devices
    ]
