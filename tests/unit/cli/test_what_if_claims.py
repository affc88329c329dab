"""What `bulkhead what-if` says of the resource claims of a pod: which are prepared, and which drivers are missing."""

from typing import Any

import pytest

from services.cli.what_if.claims import ADMITTED, PLUGINS, PREPARED, Items, previewed_claims, registered_drivers

POD = {
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}]},
}


def driver(name: str, *, kind: str = "DRAPlugin", **more: Any) -> dict[str, dict[str, Any]]:
    return {f"{kind}/{name}": {"type": kind, "name": name, **more}}


def prepared(state: str, *drivers: str) -> dict[str, Any]:
    devices = [{"driver": name, "pool": "node", "device": "d"} for name in drivers]
    return {"claims": [{"name": "x", "claim": "shared", "state": state, "devices": devices}]}


def streams(plugins: Items, claims: Items | None = None) -> dict[str, Items | None]:
    admitted = {"u": {"namespace": "shop"}, "v": {"namespace": "shop"}, "w": {"namespace": "other"}}
    return {PLUGINS: plugins, PREPARED: claims or {}, ADMITTED: admitted}


def test_a_service_that_does_not_answer_leaves_open_what_it_knows() -> None:
    silent: dict[str, Items | None] = {PLUGINS: None, PREPARED: None, ADMITTED: None}
    assert registered_drivers(silent) is None
    [claim] = previewed_claims(POD, {}, silent)
    assert (claim.kind, claim.object, claim.state, claim.problem) == ("ResourceClaim", "shared", "not known", "")


@pytest.mark.parametrize(
    ("plugins", "problem"),
    [
        (driver("gpu.e.com"), ""),
        (driver("gpu.e.com", connected=False), "DRA driver gpu.e.com is not registered, or does not listen"),
        (driver("nic.e.com"), "DRA driver gpu.e.com is not registered, or does not listen"),
    ],
)
def test_a_pod_would_wait_for_a_driver_of_its_claim_that_is_away(plugins: Items, problem: str) -> None:
    [claim] = previewed_claims(POD, {}, streams(plugins, {"u": prepared("prepared", "gpu.e.com")}))
    assert (claim.state, claim.devices, claim.problem) == ("prepared", ("gpu.e.com/node/d",), problem)


def test_on_a_node_without_drivers_each_claim_waits() -> None:
    [claim] = previewed_claims(POD, {}, streams(driver("csi.e.com", kind="CSIPlugin")))
    assert claim.problem == "no DRA driver is registered"


def test_a_claim_is_prepared_where_it_is_so_for_one_pod_of_its_namespace() -> None:
    of_pods = {"v": prepared("prepared", "gpu.e.com"), "u": prepared("unpreparing")}
    [claim] = previewed_claims(POD, {}, streams(driver("gpu.e.com"), of_pods))
    assert claim.state == "prepared"
    [claim] = previewed_claims(POD, {}, streams(driver("gpu.e.com"), {"w": prepared("prepared", "gpu.e.com")}))
    assert claim.state == "not known", "it is that of another namespace"


@pytest.mark.parametrize("results", [5, "text", [5, {"driver": 7}, {}], {"driver": "a"}, None])
def test_a_claim_of_a_file_with_values_of_wrong_types_names_no_driver(results: Any) -> None:
    for status in ({"allocation": {"devices": {"results": results}}}, {"allocation": results}, results):
        given = {"ResourceClaim/shop/shared": {"status": status}}
        [claim] = previewed_claims(POD, given, streams(driver("gpu.e.com")))
        assert (claim.state, claim.problem) == ("given", "")
