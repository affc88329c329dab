"""Which resource claims a pod needs, and which it may use, with the texts of k8s.io/dynamic-resource-allocation."""

from typing import Any

import pytest

from services.volume.core.resource_claims.pod_claims import (
    ClaimError,
    PodIdentity,
    RequestedClaim,
    allocated_claim,
    requested_claims,
)

POD = PodIdentity(uid="u", name="web", namespace="shop")
WANTED = RequestedClaim(name="gpu", claim="web-gpu")


def claim(**status: Any) -> dict[str, Any]:
    results = [{"driver": "b"}, {"driver": "a", "adminAccess": True}, {"driver": "b"}]
    whole = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"resource": "pods", "uid": "u"}]}
    return {"metadata": {"uid": "c"}, "status": {**whole, **status}}


def test_a_pod_without_claims_needs_none() -> None:
    assert requested_claims(POD, {}) == requested_claims(POD, {"spec": {"resourceClaims": None}, "status": None}) == ()


def test_a_claim_without_a_source_is_an_error_of_its_own() -> None:
    [found] = requested_claims(POD, {"spec": {"resourceClaims": [{"name": "gpu"}]}})
    assert found.error == 'pod "shop/web", spec.resourceClaim "gpu": none of the supported fields are set'


def test_each_driver_of_an_allocation_has_one_part_also_for_admin_access() -> None:
    assert allocated_claim(POD, WANTED, claim()).drivers == ("a", "b")


@pytest.mark.parametrize(
    "users", [[], [{"resource": "pods", "uid": "v"}], [{"resource": "jobs", "uid": "u"}], [{"uid": "u"}]]
)
def test_only_a_pod_for_which_the_claim_is_reserved_may_use_it(users: list[dict[str, str]]) -> None:
    with pytest.raises(ClaimError) as error:
        allocated_claim(POD, WANTED, claim(reservedFor=users))
    assert str(error.value) == "pod web (u) is not allowed to use ResourceClaim web-gpu (c)"


@pytest.mark.parametrize("owner", [{"uid": "u"}, {"uid": "v", "controller": True}, {"uid": "u", "controller": False}])
def test_the_claim_of_a_template_must_be_controlled_by_the_pod(owner: dict[str, Any]) -> None:
    owned = RequestedClaim(name="gpu", claim="web-gpu", owned=True)
    made = claim()
    made["metadata"]["ownerReferences"] = [owner]
    with pytest.raises(ClaimError, match="was not created for pod shop/web"):
        allocated_claim(POD, owned, made)
    made["metadata"]["ownerReferences"].append({"uid": "u", "controller": True})
    assert allocated_claim(POD, owned, made).uid == "c"


def test_a_claim_that_is_not_allocated_is_an_error() -> None:
    with pytest.raises(ClaimError, match="claim shop/web-gpu: not allocated"):
        allocated_claim(POD, WANTED, claim(allocation=None))
