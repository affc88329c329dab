"""Decides whether what a driver of dynamic resource allocation sends is accepted: its registration, and its answers,
with the kubelet's texts (node.md 4.16); pure.
"""

import json
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from shared.podspec.names import dns_subdomain
from shared.text.plain_text import plain

# gRPC services that the agent can call, as a driver names them among its versions.
SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
HEALTH_SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")  # the first one that a driver has is called
MAX_NAME_CHARACTERS = 63  # of a driver
MAX_SERVICES_CHARACTERS = 4096  # of all services that a driver names; real ones name two or three
MAX_DEVICES = 1024  # of one claim by one driver
MAX_LISTED = 256  # requests or CDI devices of one device
MAX_TEXT_CHARACTERS = 1024  # of a name or an id that a driver sends; real ones have a tenth
MAX_DEVICES_CHARACTERS = 65_536  # of all names and ids of a claim by one driver; those of real claims have a hundredth


class DriverError(Exception):
    """Says why a driver, or what it sent, cannot be used; `str()` is one line."""


class Device(Struct, frozen=True, kw_only=True):
    """Has a device of a claim, as its driver names it. `requests`: those of the claim that it serves, empty = all."""

    pool: str
    device: str
    share_id: str = ""
    requests: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()


class Answer(Struct, frozen=True, kw_only=True):
    """Has what a driver answers about one claim: its devices (of NodePrepareResources), or an error."""

    devices: tuple[Device, ...] = ()
    error: str = ""


def check_name(name: str) -> None:
    """Raise DriverError if no driver can have this name."""
    if len(name) > MAX_NAME_CHARACTERS or dns_subdomain(name):
        raise DriverError(f"the name must be a DNS subdomain of at most {MAX_NAME_CHARACTERS} characters")


def service_of(services: tuple[str, ...]) -> str:
    """Return the service that is called: the first one of the driver's list that the agent knows. Raises
    DriverError."""
    if not services:
        raise DriverError("empty list of supported gRPC services (aka supported versions)")
    if sum(map(len, services)) > MAX_SERVICES_CHARACTERS:
        raise DriverError("the list of supported gRPC services is too long")
    found = next((service for service in services if service in SERVICES), None)
    if found is None:
        raise DriverError(
            f"none of services supported by the plugin ({_listed(services)}) are supported by the kubelet "
            f"({_listed(SERVICES)})"
        )
    return found


def health_service_of(services: tuple[str, ...]) -> str:
    """Return the service that reports the health of the driver's devices, "" = it has none."""
    return next((service for service in HEALTH_SERVICES if service in services), "")


def check_prepared(names: Mapping[str, str], answers: Mapping[str, Answer]) -> dict[str, str]:
    """Return why claims are not prepared, by UID, given the driver's answers; `names`: those of the claims by UID.

    An answer for a claim that was not requested, or none for one that was, concerns all claims of the call."""
    return _check_answers("NodePrepareResources", names, answers)


def check_unprepared(names: Mapping[str, str], answers: Mapping[str, Answer]) -> dict[str, str]:
    """Return why claims are not unprepared, as `check_prepared` does."""
    return _check_answers("NodeUnprepareResources", names, answers)


def _check_answers(method: str, names: Mapping[str, str], answers: Mapping[str, Answer]) -> dict[str, str]:
    for uid in sorted(answers.keys() - names.keys())[:1]:
        return dict.fromkeys(names, f"{method} returned result for unknown claim UID {plain(uid[:64])}")
    failed = {
        uid: f"{method} failed for ResourceClaim {names[uid]}: {plain(answer.error[:MAX_TEXT_CHARACTERS])}"
        for uid, answer in answers.items()
        if answer.error
    }
    if skipped := names.keys() - answers.keys():
        failed |= dict.fromkeys(skipped, f"{method} skipped {len(skipped)} ResourceClaims")
    for uid in answers.keys() - failed.keys():
        if problem := _devices_problem(answers[uid].devices):
            failed[uid] = f"{method} failed for ResourceClaim {names[uid]}: {problem}"
    return failed


def _devices_problem(devices: Collection[Device]) -> str:
    if len(devices) > MAX_DEVICES:
        return f"the driver names {len(devices)} devices, more than {MAX_DEVICES}"
    characters = 0
    for device in devices:
        if max(len(device.requests), len(device.cdi_devices)) > MAX_LISTED:
            return f"the driver names more than {MAX_LISTED} requests or CDI devices of one device"
        texts = (device.pool, device.device, device.share_id, *device.requests, *device.cdi_devices)
        if any(len(text) > MAX_TEXT_CHARACTERS or not text.isprintable() for text in texts):
            return f"the driver names a device with more than {MAX_TEXT_CHARACTERS} or unprintable characters"
        characters += sum(map(len, texts))
    if characters > MAX_DEVICES_CHARACTERS:
        return f"the driver names devices with {characters} characters, more than {MAX_DEVICES_CHARACTERS}"
    return ""


def _listed(texts: Iterable[str]) -> str:
    return f"[{' '.join(json.dumps(text, ensure_ascii=False) for text in texts)}]"
