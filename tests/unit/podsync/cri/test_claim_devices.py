"""A container gets the CDI devices of its requests of resource claims, before those of device plugins (node.md 4.16,
pods.md 6.2)."""

from typing import Any

import pytest

from bus.messages.resource_claims import ClaimDevice, ClaimState, PodClaim, PodClaims
from services.podsync.core.cri.claim_setup import claim_devices
from services.podsync.core.cri.config_errors import ContainerConfigError
from tests.unit.podsync.cri.container_messages import a_pod, built


def device(name: str, *requests: str, cdi: tuple[str, ...] = ()) -> ClaimDevice:
    return ClaimDevice(driver="d", pool="p", device=name, requests=requests, cdi_devices=cdi or (f"v.com/c={name}",))


def claim(name: str, *devices: ClaimDevice, **fields: Any) -> PodClaim:
    return PodClaim(name=name, claim=f"of-{name}", **{"state": ClaimState.PREPARED, "devices": devices, **fields})


def given(container: dict[str, Any], *claims: PodClaim, needed: tuple[str, ...] = ()) -> tuple[str, ...]:
    return claim_devices({"name": "c", **container}, needed, PodClaims(uid="u", claims=claims))


def using(*entries: tuple[str, str]) -> dict[str, Any]:
    listed = [{"name": name} | ({"request": request} if request else {}) for name, request in entries]
    return {"resources": {"claims": listed}}


A, B, BOTH, ALL = device("a", "big"), device("b", "small"), device("s", "big", "small"), device("all")


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, ""),
        (using(("gpu", "")), "a b s all"),
        (using(("gpu", "big")), "a s all"),
        (using(("gpu", "small")), "b s all"),
        (using(("gpu", "other")), "all"),
        (using(("gpu", "small"), ("gpu", "big")), "b s all a"),
        (using(("nic", "")), "n"),
        (using(("nic", ""), ("gpu", "small")), "b s all n"),
        (using(("unknown", "")), ""),
    ],
)
def test_the_devices_are_those_of_the_requests_in_the_order_of_the_pods_claims(
    container: dict[str, Any], expected: str
) -> None:
    claims = (claim("gpu", A, B, BOTH, ALL), claim("nic", device("n")))
    assert given(container, *claims) == tuple(f"v.com/c={name}" for name in expected.split())


def test_the_claim_of_extended_resources_serves_the_containers_that_it_names() -> None:
    extended = claim("", A, B, containers={"c": ("small",), "other": ("big",)})
    assert given({}, extended) == ("v.com/c=b",)
    assert claim_devices({"name": "third"}, (), PodClaims(uid="u", claims=(extended,))) == ()


def test_a_device_may_have_several_cdi_names_or_none() -> None:
    claims = (claim("gpu", device("a", cdi=("x=1", "y=2", "x=1"))),)
    assert given(using(("gpu", "")), *claims) == ("x=1", "y=2")
    bare = ClaimDevice(driver="d", pool="p", device="a")
    assert given(using(("gpu", "")), claim("gpu", bare)) == ()


@pytest.mark.parametrize("state", [ClaimState.PENDING, ClaimState.ERROR, ClaimState.UNPREPARING])
def test_a_claim_that_is_not_prepared_is_an_error(state: ClaimState) -> None:
    with pytest.raises(ContainerConfigError, match="resource claim gpu is not prepared"):
        given({}, claim("gpu", A, state=state), claim("nic"))


def test_a_claim_that_volume_has_not_published_is_an_error() -> None:
    with pytest.raises(ContainerConfigError, match="resource claim nic is not prepared"):
        given({}, claim("gpu", A), needed=("gpu", "nic"))
    with pytest.raises(ContainerConfigError, match="the resource claim of extended resources is not prepared"):
        claim_devices({"name": "c"}, ("",), None)
    assert claim_devices({"name": "c"}, (), None) == ()


def test_the_message_has_the_devices_of_claims_first() -> None:
    message = built(a_pod(using(("gpu", ""))), claim_devices=("v.com/c=a", "v.com/c=b"))
    assert message["CDI_devices"] == [{"name": "v.com/c=a"}, {"name": "v.com/c=b"}]
