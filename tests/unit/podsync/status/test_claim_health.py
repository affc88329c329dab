"""`allocatedResourcesStatus` shows the health of the devices of resource claims (node.md 4.15, 4.16)."""

from typing import Any

import pytest

from bus.messages.podsync import PodState
from bus.messages.resource_claims import ClaimDevice, ClaimState, PodClaim, PodClaims
from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.placement.placing import NodePlacer, PlacementSettings
from services.podsync.core.pod.gated_fields import RESOURCE_HEALTH, RESOURCE_HEALTH_MESSAGE
from services.podsync.core.status.claim_health import with_claim_health
from shared.model.machine_topology import MachineTopology
from tests.unit.podsync.admission.test_device_admission import GPU, plugin
from tests.unit.podsync.play import Play, a_container, a_pod


def device(name: str, health: str = "", *requests: str, cdi: bool = True, message: str = "") -> ClaimDevice:
    names = (f"v.com/c={name}", f"v.com/d={name}") if cdi else ()
    return ClaimDevice(
        driver="d.com", pool="p", device=name, requests=requests, cdi_devices=names, health=health, message=message
    )


def claims(*devices: ClaimDevice, state: ClaimState = ClaimState.PREPARED) -> PodClaims:
    return PodClaims(uid="u1", claims=(PodClaim(name="gpu", claim="web-gpu", state=state, devices=devices),))


def using(*requests: str) -> dict[str, Any]:
    entries = [{"name": "gpu"} | ({"request": request} if request else {}) for request in requests]
    return {"name": "c", "resources": {"claims": entries}}


def shown(spec: dict[str, Any], item: PodClaims | None, **options: Any) -> dict[str, dict[str, str]]:
    """Return the health by device, by the name of the resource."""
    status = with_claim_health({}, {}, spec, item, **options)
    return {
        entry["name"]: {resource["resourceID"]: resource["health"] for resource in entry["resources"]}
        for entry in status.get("allocatedResourcesStatus", ())
    }


def test_a_claim_shows_all_its_devices_and_a_request_its_own() -> None:
    item = claims(device("a", "Healthy", "big"), device("b", "Unhealthy", "small"), device("s", "Unknown"))
    assert shown(using(""), item) == {
        "claim:gpu": {"v.com/c=a": "Healthy", "v.com/c=b": "Unhealthy", "v.com/c=s": "Unknown"}
    }
    assert shown(using("big", "small"), item) == {
        "claim:gpu/big": {"v.com/c=a": "Healthy", "v.com/c=s": "Unknown"},
        "claim:gpu/small": {"v.com/c=b": "Unhealthy", "v.com/c=s": "Unknown"},
    }
    assert shown({"name": "c"}, item) == {}


def test_a_device_without_cdi_names_has_its_driver_pool_and_name_and_one_without_reports_is_unknown() -> None:
    assert shown(using(""), claims(device("a", cdi=False))) == {"claim:gpu": {"d.com/p/a": "Unknown"}}


def test_the_message_of_the_driver_is_shown_with_its_gate() -> None:
    item = claims(device("a", "Unhealthy", message="too hot"))
    [entry] = with_claim_health({}, {}, using(""), item)["allocatedResourcesStatus"]
    assert entry["resources"] == [{"resourceID": "v.com/c=a", "health": "Unhealthy", "message": "too hot"}]
    [entry] = with_claim_health({}, {}, using(""), item, messages=False)["allocatedResourcesStatus"]
    assert entry["resources"] == [{"resourceID": "v.com/c=a", "health": "Unhealthy"}]


@pytest.mark.parametrize("item", [None, claims(state=ClaimState.PENDING), claims(state=ClaimState.ERROR)])
def test_what_was_shown_stays_while_the_claim_is_not_known_as_prepared(item: PodClaims | None) -> None:
    before = with_claim_health({}, {}, using(""), claims(device("a", "Healthy")))
    assert with_claim_health(dict(before), before, using(""), item) == before
    assert with_claim_health({}, {}, using(""), item) == {}


def a_play(*gates_off: str) -> Play:
    """A pod that runs with a device of a plugin and one of a claim."""
    placer = NodePlacer(MachineTopology(), PlacementSettings())
    facts = MachineFacts(placer=placer, gates_off=frozenset(gates_off))
    play = Play(source="api", devices={GPU: plugin("p")}, facts=facts)
    amounts = {kind: {GPU: "1"} for kind in ("limits", "requests")}
    container = a_container("c", resources={**amounts, "claims": [{"name": "gpu"}]})
    pod = a_pod(containers=[container], resourceClaims=[{"name": "gpu", "resourceClaimName": "web-gpu"}])
    play.put_claims("u1", claims(device("a", "Healthy", message="cool")))
    play.want(pod)
    assert play.running("u1") == [("c", 0)]
    return play


def of_pod(play: Play) -> list[dict[str, Any]]:
    [status] = play.statuses["u1"].status["containerStatuses"]
    return list(status.get("allocatedResourcesStatus", ()))


OF_PLUGIN = {"name": GPU, "resources": [{"resourceID": "p", "health": "Healthy"}]}


def of_claim(health: str, **more: str) -> dict[str, Any]:
    return {"name": "claim:gpu", "resources": [{"resourceID": "v.com/c=a", "health": health, **more}]}


def test_a_container_shows_devices_of_plugins_and_of_claims_through_changes_and_restarts() -> None:
    play = a_play()
    assert of_pod(play) == [OF_PLUGIN, of_claim("Healthy", message="cool")]
    play.put_claims("u1", claims(device("a", "Unhealthy")))
    assert of_pod(play) == [OF_PLUGIN, of_claim("Unhealthy")]
    play.claims_listed = False
    play.restart()
    play.exit("u1", 1)
    play.later(60)
    assert of_pod(play) == [OF_PLUGIN, of_claim("Unhealthy")]
    play.list_claims()
    assert (of_pod(play), play.running("u1")) == ([OF_PLUGIN, of_claim("Unhealthy")], [("c", 1)])


def test_a_pod_that_has_ended_keeps_what_was_shown() -> None:
    play = a_play()
    play.drop("u1")
    assert play.core.tracked["u1"].saved.state is PodState.TERMINATED
    play.put_claims("u1", claims(device("a", "Unhealthy"), state=ClaimState.UNPREPARING))
    play.put_claims("u1", None)
    assert of_pod(play) == [OF_PLUGIN, of_claim("Healthy", message="cool")]


@pytest.mark.parametrize("gate", [RESOURCE_HEALTH, RESOURCE_HEALTH_MESSAGE])
def test_without_their_gates_health_and_messages_are_not_shown(gate: str) -> None:
    play = a_play(gate)
    assert of_pod(play) == ([] if gate == RESOURCE_HEALTH else [OF_PLUGIN, of_claim("Healthy")])
