"""Converts the record of resource claims to and from JSON data; pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from services.volume.core.resource_claims.claim import Claim, Part, PartState, Use
from services.volume.core.resource_claims.driver_checks import Device


def written_record(claims: Iterable[Claim], boot: str) -> dict[str, Any]:
    """Return the data of the record. `boot`: identity of this boot of the machine."""
    return {"boot": boot, "claims": [_written(claim) for claim in claims]}


def read_record(record: Any, boot: str) -> tuple[Claim, ...]:
    """Return the claims of a record; one of another boot has no prepared claims. Raises ValueError."""
    try:
        claims = tuple(_read(claim) for claim in record["claims"])
        same = bool(boot) and record["boot"] == boot
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"it is not a record of resource claims ({type(error).__name__})") from None
    return claims if same else tuple(claim.unsettled() for claim in claims)


def _written(claim: Claim) -> dict[str, Any]:
    return {
        "uid": claim.uid,
        "name": claim.name,
        "namespace": claim.namespace,
        "pods": {
            uid: {
                "names": list(use.names),
                "containers": {name: list(requests) for name, requests in use.containers.items()},
            }
            for uid, use in claim.pods.items()
        },
        "drivers": {
            driver: {
                "state": str(part.state),
                "devices": [_written_device(device) for device in part.devices],
                "specified": part.specified,
            }
            for driver, part in claim.parts.items()
        },
    }


def _written_device(device: Device) -> dict[str, Any]:
    return {
        "pool": device.pool,
        "device": device.device,
        "share_id": device.share_id,
        "requests": list(device.requests),
        "cdi_devices": list(device.cdi_devices),
    }


def _read(claim: Mapping[str, Any]) -> Claim:
    return Claim(
        uid=_text(claim["uid"]),
        name=_text(claim["name"]),
        namespace=_text(claim["namespace"]),
        pods={
            uid: Use(
                names=_texts(use["names"]), containers={c: _texts(found) for c, found in use["containers"].items()}
            )
            for uid, use in claim["pods"].items()
        },
        parts={
            driver: Part(
                state=PartState(part["state"]),
                devices=tuple(_device(device) for device in part["devices"]),
                specified=part["specified"] is True,
            )
            for driver, part in claim["drivers"].items()
        },
    )


def _device(device: Mapping[str, Any]) -> Device:
    return Device(
        pool=_text(device["pool"]),
        device=_text(device["device"]),
        share_id=_text(device["share_id"]),
        requests=_texts(device["requests"]),
        cdi_devices=_texts(device["cdi_devices"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError("no list")
    return tuple(_text(value) for value in values)
