"""Which Secrets and ConfigMaps pods name, who still needs them, and when a fetched one will do."""

from typing import Any

import pytest

from services.sources.core import first_seen
from services.sources.core.fetched_object import FetchedObject, time_to_live
from services.sources.core.reference_counts import ReferenceCounts
from shared.podspec.references import Reference, referenced_objects


def secret(name: str) -> Reference:
    return Reference("Secret", "ns", name)


def config_map(name: str) -> Reference:
    return Reference("ConfigMap", "ns", name)


def test_references_are_found_wherever_a_pod_may_have_them() -> None:
    container = {
        "env": [
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s-env", "key": "k"}}},
            {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c-env", "key": "k"}}},
            {"name": "C", "value": "plain"},
        ],
        "envFrom": [{"secretRef": {"name": "s-from"}}, {"configMapRef": {"name": "c-from"}}],
    }
    volumes = [
        {"name": "1", "secret": {"secretName": "s-vol"}},
        {"name": "2", "configMap": {"name": "c-vol"}},
        {"name": "3", "projected": {"sources": [{"secret": {"name": "s-pro"}}, {"configMap": {"name": "c-pro"}}]}},
        {"name": "4", "csi": {"nodePublishSecretRef": {"name": "s-csi"}}},
        {"name": "5", "azureFile": {"secretName": "s-azure"}},
        {"name": "6", "configMap": {"name": "c-env"}},
    ]
    spec = {"imagePullSecrets": [{"name": "s-pull"}, {}], "containers": [container], "volumes": volumes}
    debug = {"name": "d", "envFrom": [{"secretRef": {"name": "s-debug"}}, 7], "env": "odd"}
    found = referenced_objects({"metadata": {"namespace": "ns"}, "spec": spec | {"ephemeralContainers": [debug]}})
    assert list(found)[-1] == secret("s-debug"), "what debug containers add takes no other object's place"
    unseen = ["s-env", "s-from", "s-csi", "s-azure", "s-pull", "s-debug"]
    assert {reference for reference, shown in found.items() if not shown} == {
        *map(secret, unseen),
        config_map("c-from"),
    }
    assert {reference for reference, shown in found.items() if shown} == {
        *map(secret, ["s-vol", "s-pro"]),
        *map(config_map, ["c-vol", "c-pro", "c-env"]),
    }


def test_a_reference_is_needed_until_the_last_pod_gives_it_up() -> None:
    counts = ReferenceCounts()
    assert counts.register("a", {secret("x"): False, secret("y"): False}) == ([secret("x"), secret("y")], [])
    assert counts.register("a", {secret("x"): False, secret("y"): False}) == ([], []), "nothing is new"
    assert counts.register("b", {secret("x"): False}) == ([secret("x")], [])
    assert set(counts.pods(secret("x"))) == {"a", "b"} and not counts.is_shown(secret("x"))
    assert counts.register("b", {secret("x"): True}) == ([secret("x")], []), "a volume shows it now"
    assert counts.is_shown(secret("x"))
    assert counts.register("a", {}) == ([], [secret("y")])
    assert counts.unregister("b") == [secret("x")]
    assert counts.unregister("b") == [] and not list(counts.pods(secret("x")))
    assert secret("x") not in counts and not counts.is_shown(secret("x")) and not counts.references


def version(number: str) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": number}}


def test_a_fetched_object_will_do_for_its_time_and_never_becomes_older() -> None:
    kept = FetchedObject()
    kept.fetched(version("10"), now=0.0)
    kept.fetched(version("9"), now=50.0)
    assert kept.object == version("10")
    assert (kept.is_valid(109.0, 60.0), kept.is_valid(110.0, 60.0), kept.is_valid(50.0, 0.0)) == (True, False, False)
    kept.missed("gone", now=110.0)
    assert not kept.object and kept.not_found == "gone"
    kept.invalidate()
    assert not kept.is_valid(110.0, 60.0)


@pytest.mark.parametrize(
    ("annotations", "seconds"),
    [({"node.alpha.kubernetes.io/ttl": "15"}, 15.0), ({"node.alpha.kubernetes.io/ttl": "0"}, 0.0), ({}, 60.0)]
    + [({"node.alpha.kubernetes.io/ttl": text}, 60.0) for text in ("", "-1", "soon", "9" * 400, "1e3")]
    + [(None, 60.0), ("odd", 60.0)],
)
def test_the_annotation_of_the_node_sets_how_long_an_object_is_valid(annotations: Any, seconds: float) -> None:
    assert time_to_live({"metadata": {"annotations": annotations}}) == seconds
    assert time_to_live(None) == 60.0


def test_a_record_of_first_sights_comes_back_and_an_odd_one_does_not() -> None:
    assert first_seen.decode(first_seen.encode({"a": "t0"})) == {"a": "t0"}
    for odd in (None, {}, {"version": 0, "pods": {"a": "t0"}}, {"version": 1, "pods": []}):
        assert first_seen.decode(odd) == {}
    assert first_seen.decode({"version": 1, "pods": {"a": 1, "b": "t"}}) == {"b": "t"}
    newer = {"version": 2, "more": 1}
    assert first_seen.decode({**newer, "pods": {"u": "t"}}) == {"u": "t"}
    assert first_seen.is_newer({**newer, "by_uid": {}}) and not first_seen.is_newer({**newer, "pods": {}})
    assert not first_seen.is_newer(None)


def test_the_record_has_the_version_up_to_which_the_pods_were_read() -> None:
    assert first_seen.resource_version(first_seen.encode({"a": "t0"}, "17")) == "17"
    for odd in (None, {}, {"version": 1, "pods": {}}, {"resource_version": 17}, {"resource_version": "x"}):
        assert first_seen.resource_version(odd) == ""
