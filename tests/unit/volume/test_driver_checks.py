"""What a driver of dynamic resource allocation may answer, with the kubelet's texts (node.md 4.16)."""

import pytest

from services.volume.core.resource_claims.driver_checks import (
    MAX_DEVICES,
    MAX_DEVICES_CHARACTERS,
    MAX_LISTED,
    Answer,
    Device,
    check_prepared,
    check_unprepared,
)

NAMES = {"u1": "web-gpu", "u2": "web-nic"}
GOOD = Answer(devices=(Device(pool="p", device="d", cdi_devices=("v/c=d",)),))


def test_claims_that_are_answered_without_an_error_are_prepared() -> None:
    assert check_prepared(NAMES, {"u1": GOOD, "u2": Answer()}) == {}


def test_an_error_concerns_its_claim_and_is_one_line() -> None:
    failed = check_prepared(NAMES, {"u1": Answer(error="no\nsuch device"), "u2": GOOD})
    assert failed == {"u1": "NodePrepareResources failed for ResourceClaim web-gpu: no\\nsuch device"}


def test_a_claim_that_was_not_requested_spoils_the_answer() -> None:
    failed = check_prepared(NAMES, {"u1": GOOD, "u2": GOOD, "u3": GOOD})
    assert failed == dict.fromkeys(NAMES, "NodePrepareResources returned result for unknown claim UID u3")


def test_claims_that_are_not_answered_are_counted() -> None:
    assert check_prepared(NAMES, {"u2": GOOD}) == {"u1": "NodePrepareResources skipped 1 ResourceClaims"}
    assert check_unprepared(NAMES, {}) == dict.fromkeys(NAMES, "NodeUnprepareResources skipped 2 ResourceClaims")


@pytest.mark.parametrize(
    "devices",
    [
        tuple(Device(pool="p", device=str(number)) for number in range(MAX_DEVICES + 1)),
        (Device(pool="p", device="x" * 1025),),
        (Device(pool="p", device="d", cdi_devices=("v/c=a\nb",)),),
        (Device(pool="p", device="d", requests=("r",) * (MAX_LISTED + 1)),),
        (Device(pool="p", device="d", cdi_devices=("v/c=d",) * (MAX_LISTED + 1)),),
        tuple(Device(pool="p", device="x" * 1000) for _ in range(MAX_DEVICES_CHARACTERS // 1000 + 1)),
    ],
)
def test_devices_that_no_claim_has_are_an_error_of_the_claim(devices: tuple[Device, ...]) -> None:
    failed = check_prepared(NAMES, {"u1": Answer(devices=devices), "u2": GOOD})
    [(uid, text)] = failed.items()
    assert uid == "u1" and text.startswith("NodePrepareResources failed for ResourceClaim web-gpu: the driver names ")
