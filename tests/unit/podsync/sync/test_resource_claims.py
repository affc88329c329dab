"""A pod with resource claims starts once they are prepared, and has ended once they are unprepared (node.md 4.16,
pods.md 5.5, 8.1, 9.5). volume is played by its own core."""

from typing import Any

import pytest

from bus.messages.podsync import PodState
from bus.messages.resource_claims import ClaimState
from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.pod.events import ClaimsFreshness, PodEvicted
from services.podsync.core.pod.gated_fields import EXTENDED_CLAIMS
from shared.model.frozen_copy import replace
from tests.unit.podsync.claim_volume import AWAY, ClaimVolume
from tests.unit.podsync.play import Play, Pod, a_container, a_pod

GPU = {"name": "gpu", "resourceClaimName": "web-gpu"}
TEMPLATE = {"name": "nic", "resourceClaimTemplateName": "nics"}


def with_claims(*claims: dict[str, str], uid: str = "u1", name: str = "web", **status: Any) -> Pod:
    """A pod whose container has these claims, with this status in the API server."""
    used = {"claims": [{"name": claim["name"]} for claim in claims]}
    containers = [a_container("c", resources=used)]
    return a_pod(uid, name, resourceClaims=list(claims), containers=containers) | {"status": status}


def created(**names: str | None) -> dict[str, Any]:
    """The status of claims that templates have made, by name within the pod; None = none is needed."""
    entries = [{"name": name} | ({"resourceClaimName": claim} if claim else {}) for name, claim in names.items()]
    return {"resourceClaimStatuses": entries}


def a_play(**fields: Any) -> tuple[Play, ClaimVolume]:
    play = Play(source="api", **fields)
    return play, ClaimVolume(play)


def phase(play: Play, uid: str = "u1") -> str:
    return str(play.statuses[uid].status["phase"])


def condition(play: Play, uid: str = "u1") -> tuple[str, str, str]:
    """Status, reason and message of PodReadyToStartContainers."""
    listed = play.statuses[uid].status["conditions"]
    found = next(c for c in listed if c["type"] == "PodReadyToStartContainers")
    return found["status"], found.get("reason", ""), found.get("message", "")


def test_the_containers_wait_until_every_claim_is_prepared() -> None:
    play, volume = a_play()
    play.want(with_claims(GPU))
    assert play.log == ["LookAtPod", "PreparePod"]
    assert play.core.tracked["u1"].waits_for == "resource claims: gpu"
    assert play.published["u1"].volumes.pod["spec"]["resourceClaims"] == [GPU]
    volume.act()
    assert play.running("u1") == [("c", 0)]
    assert condition(play)[0] == "True"


def test_a_claim_that_a_template_makes_is_published_once_the_status_names_it() -> None:
    play, volume = a_play()
    play.want(with_claims(GPU, TEMPLATE))
    volume.act()
    assert play.running("u1") == [] and "status" not in play.published["u1"].volumes.pod
    assert play.core.tracked["u1"].waits_for.endswith('pod "default/web": ResourceClaim not created yet')
    play.want(with_claims(GPU, TEMPLATE, **created(nic="web-nic-x")))
    assert play.published["u1"].volumes.pod["status"] == created(nic="web-nic-x")
    play.wall += 60
    volume.act()
    assert play.running("u1") == [("c", 0)]


def test_a_claim_that_a_template_does_not_need_is_not_waited_for() -> None:
    play, volume = a_play()
    play.want(with_claims(TEMPLATE, **created(nic=None)))
    volume.act()
    assert play.running("u1") == [("c", 0)] and play.claims == {}


def test_a_pod_whose_driver_is_away_says_which_and_since_when() -> None:
    play, volume = a_play()
    volume.away = True
    play.want(with_claims(GPU))
    volume.act()
    since = "1970-01-12T13:46:40Z"
    error = f"prepare dynamic resources: {AWAY}"
    text = f"resource claims: gpu (ResourceClaim web-gpu), not prepared since {since}: {error}"
    assert play.core.tracked["u1"].waits_for == text
    assert condition(play) == ("False", "ResourceClaimNotPrepared", f"the pod waits for {text}")
    play.claims_listed = False
    play.restart()
    assert condition(play) == ("False", "ResourceClaimNotPrepared", f"the pod waits for {text}")
    assert play.running("u1") == []
    play.list_claims()
    volume.away, play.wall = False, play.wall + 60
    volume.act()
    assert play.running("u1") == [("c", 0)]
    assert condition(play) == ("True", "", "")


def test_a_restart_of_either_process_starts_no_container_and_stops_none() -> None:
    play, volume = a_play()
    play.want(with_claims(GPU))
    volume.act()
    made = list(play.made)
    play.claims_listed = False
    play.restart()
    volume.restart()
    volume.publish()
    volume.act()
    play.list_claims()
    assert play.running("u1") == [("c", 0)] and play.made == made
    play.exit("u1", 1)
    play.later(60)
    assert play.running("u1") == [("c", 1)]


def test_a_claim_that_must_be_prepared_again_keeps_containers_from_starting_and_stops_none() -> None:
    play, volume = a_play()
    pod = with_claims(GPU)
    pod["spec"]["containers"] += [a_container("other")]
    play.want(pod)
    volume.act()
    prepared = play.claims["u1"]
    lost = replace(prepared, claims=(replace(prepared.claims[0], state=ClaimState.PENDING, devices=()),))
    play.put_claims("u1", lost)
    play.later(120)
    assert play.running("u1") == [("c", 0), ("other", 0)]
    play.exit("u1", 1)
    play.later(120)
    assert play.running("u1") == [("other", 0)]
    assert play.core.tracked["u1"].waits_for == "resource claims: gpu (ResourceClaim web-gpu)"
    play.exit("u1", 1, "other")
    play.later(120)
    assert play.running("u1") == []
    play.put_claims("u1", prepared)
    assert sorted(play.running("u1")) == [("c", 1), ("other", 1)]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_pod_that_has_ended_is_shown_so_once_its_claims_are_unprepared(restarted: bool) -> None:
    play, volume = a_play()
    pod = with_claims(GPU)
    pod["spec"]["restartPolicy"] = "Never"
    play.want(pod)
    volume.act()
    volume.away = True
    play.exit("u1", 0)
    volume.act()
    if restarted:
        play.claims_listed = False
        play.restart()
        assert play.core.tracked["u1"].waits_for == "the list of prepared resource claims"
        assert phase(play) == "Running"
        play.list_claims()
    assert (phase(play), play.published["u1"].volumes.state) == ("Running", PodState.TERMINATED)
    assert play.core.tracked["u1"].waits_for.startswith("resource claims to be unprepared: gpu (ResourceClaim web-gpu)")
    volume.away, play.wall = False, play.wall + 60
    volume.act()
    assert (phase(play), play.published["u1"].volumes.state) == ("Succeeded", PodState.FINISHED)


def test_a_pod_whose_claims_cannot_be_unprepared_ends_after_five_minutes() -> None:
    play, volume = a_play()
    play.want(with_claims(GPU))
    volume.act()
    volume.away = True
    play.drop("u1")
    for _ in range(6):
        volume.act()
        assert not play.published["u1"].volumes.finished
        assert phase(play) == "Running"
        play.later(59)
    volume.act()
    assert play.claims["u1"].overdue
    assert "u1" not in play.published or play.published["u1"].volumes.finished


def test_an_evicted_pod_is_shown_as_disrupted_together_with_its_end() -> None:
    play, volume = a_play()
    play.want(with_claims(GPU))
    volume.act()
    play.happen(PodEvicted(uid="u1", message="short of memory", grace_seconds=3, disruption="evicted"))

    def is_disrupted() -> bool:
        return "DisruptionTarget" in [c["type"] for c in play.statuses["u1"].status["conditions"]]

    assert (phase(play), is_disrupted()) == ("Running", False)
    volume.act()
    assert (phase(play), is_disrupted()) == ("Failed", True)


def test_a_pod_that_never_got_its_claims_ends_at_once() -> None:
    play, volume = a_play()
    play.want(with_claims(TEMPLATE))
    volume.act()
    play.drop("u1")
    volume.act()
    assert play.made == [] and play.claims == {}
    assert "u1" not in play.published or play.published["u1"].volumes.finished


def test_while_volume_is_away_a_pod_that_has_ended_waits() -> None:
    play, volume = a_play()
    play.want(with_claims(GPU))
    volume.act()
    play.handle(ClaimsFreshness(complete=True, stale=True))
    play.drop("u1")
    assert play.published["u1"].volumes.state is PodState.TERMINATED
    assert phase(play) == "Running"
    volume.act()
    assert phase(play) == "Running"  # an item may be missing in a stale replica
    play.happen(ClaimsFreshness(complete=True, stale=False))
    assert "u1" not in play.published or play.published["u1"].volumes.finished


def extended(claim: str = "web-ext", container: str = "c") -> dict[str, Any]:
    mapping = {"containerName": container, "resourceName": "example.com/gpu", "requestName": "r0"}
    return {"extendedResourceClaimStatus": {"resourceClaimName": claim, "requestMappings": [mapping]}}


def test_the_claim_of_extended_resources_is_waited_for() -> None:
    play, volume = a_play()
    play.want(a_pod() | {"status": extended()})
    assert play.core.tracked["u1"].waits_for == "resource claims: that of extended resources"
    volume.act()
    assert play.running("u1") == [("c", 0)]
    assert play.claims["u1"].claims[0].containers == {"c": ("r0",)}


def test_without_the_gate_extended_resources_have_no_claim() -> None:
    play, volume = a_play()
    play.want(a_pod() | {"status": extended()})
    play.facts = MachineFacts(gates_off=frozenset({EXTENDED_CLAIMS}))
    play.restart()
    volume.act()
    assert play.running("u1") == [("c", 0)]
    assert "status" not in play.published["u1"].volumes.pod


@pytest.mark.parametrize(
    "status",
    [
        None,
        [],
        {"resourceClaimStatuses": {"name": "nic"}},
        {"resourceClaimStatuses": [None, {}, {"name": 3, "resourceClaimName": "x"}]},
        {"extendedResourceClaimStatus": []},
        {"extendedResourceClaimStatus": {"resourceClaimName": None, "requestMappings": [{}]}},
    ],
)
def test_a_status_of_another_shape_names_no_claim(status: Any) -> None:
    play, volume = a_play()
    play.want(a_pod() | {"status": status})
    volume.act()
    assert play.running("u1") == [("c", 0)] and play.claims == {}
    assert play.core.tracked["u1"].saved.claim_status == {}


def test_a_record_of_a_pod_keeps_what_names_its_claims() -> None:
    play, volume = a_play()
    play.want(with_claims(TEMPLATE, **created(nic="web-nic")))
    volume.act()
    play.wanted.clear()
    play.sources_complete = False
    play.restart()
    assert play.published["u1"].volumes.pod["status"] == created(nic="web-nic")
    assert play.core.tracked["u1"].waits_for == ""
