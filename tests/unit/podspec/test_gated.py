"""Which fields a pod runs without, by the feature gates of the node, and what an operator reads of it."""

from typing import Any

import pytest

from services.podsync.adapters import node_facts_reader
from services.podsync.core.admission.node_view import MachineFacts
from services.podsync.core.admission.taken import taken_by
from services.podsync.core.admission.verdict import admit
from shared.config.gate_releases import EVERY_GATE, gates_of
from shared.config.readers import GATE_READERS
from shared.podspec.gated import GATED_FIELDS, MAX_NAMED_FIELDS, event_message, unheeded_fields
from shared.podspec.schema import type_errors
from shared.podspec.support import Effect
from tests.architecture.checkout import text_of
from tests.unit.podsync.admission.test_admission import FACTS, a_view
from tests.unit.podsync.play import Play, a_container, a_pod

MOUNT = {"name": "v", "mountPath": "/v", "bindMountOptions": ["noexec", "nosuid"]}
ALL_ON = dict.fromkeys(EVERY_GATE, True)
ALL_OFF = dict.fromkeys(EVERY_GATE, False)


def every_field() -> dict[str, Any]:
    """A pod with each field of the table, in its different places."""
    probe = {"httpGet": {"port": 80, "protocol": "HTTP2"}}
    container = a_container("c", volumeMounts=[MOUNT], readinessProbe=probe, lifecycle={"stopSignal": "SIGUSR1"})
    sidecar = a_container("s", volumeMounts=[{"name": "v", "mountPath": "/v"}, MOUNT], restartPolicy="Always")
    sidecar["startupProbe"] = {"grpc": {"port": 1, "mode": "TLS"}}
    items = [{"key": "a", "path": "a"}, {"key": "b", "path": "b", "user": 0}]
    volumes = [
        {"name": "v", "emptyDir": {"mode": 0o1777}},
        {"name": "m", "configMap": {"name": "m", "defaultUser": 7, "items": items}},
        {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "user": 7}}]}},
    ]
    return a_pod(
        containers=[container], initContainers=[sidecar], volumes=volumes, restoreFrom={"name": "of-yesterday"}
    )


FIELDS = [
    "spec.containers[0].volumeMounts[0].bindMountOptions",
    "spec.initContainers[0].volumeMounts[1].bindMountOptions",
    "spec.volumes[0].emptyDir.mode",
    "spec.volumes[1].configMap.defaultUser",
    "spec.volumes[1].configMap.items[1].user",
    "spec.volumes[2].projected.sources[0].serviceAccountToken.user",
    "spec.restoreFrom",
    "spec.containers[0].lifecycle.stopSignal",
    "spec.containers[0].readinessProbe.httpGet.protocol",
    "spec.initContainers[0].startupProbe.grpc.mode",
]


def test_each_field_whose_gate_is_off_is_named_with_its_place() -> None:
    pod = every_field()
    assert type_errors(pod) == []
    found = unheeded_fields(pod, ALL_OFF, "1.36")
    assert [one.field for one in found] == FIELDS
    assert {one.effect for one in found} == {Effect.WITHOUT}
    assert found[2].consequence == "the pod runs without it: the feature gate EmptyDirVolumeMode is off"


def test_with_its_gate_a_field_counts() -> None:
    (unbuilt,) = unheeded_fields(every_field(), ALL_ON, "1.37")
    assert unbuilt.field == "spec.restoreFrom"
    assert unbuilt.consequence == "the pod runs without it: it is not supported"


@pytest.mark.parametrize("gates", [ALL_OFF, dict(gates_of("1.37"))])
def test_what_means_the_same_as_no_value_is_not_named(gates: dict[str, Any]) -> None:
    plain = {"httpGet": {"port": 80, "protocol": "HTTP1"}}
    container = a_container("c", volumeMounts=[{"name": "v", "mountPath": "/v", "bindMountOptions": []}])
    pod = a_pod(containers=[{**container, "livenessProbe": plain}], volumes=[{"name": "v", "emptyDir": {}}])
    assert unheeded_fields(pod, dict.fromkeys(gates, False), "1.37") == ()


def test_since_1_37_a_node_that_does_not_declare_options_of_mounts_rejects_the_pod() -> None:
    """The words are those of pods.md 3.1 for declared features."""
    pod = every_field()
    rejected = [one for one in unheeded_fields(pod, ALL_OFF, "1.37") if one.effect is Effect.REJECTED]
    assert [one.field for one in rejected] == FIELDS[:2]

    def verdict(release: str, *, gate: bool, runtime: bool) -> tuple[str, str]:
        facts = MachineFacts(
            node_name="n1",
            labels=FACTS.labels,
            allocatable=FACTS.allocatable,
            kernel=(6, 1),
            release=release,
            feature_gates={"VolumeBindMountOptions": gate},
        )
        given = admit(pod, "Pending", a_view(facts=facts, mount_options=runtime), taken_by(()))
        return given.reason, given.message

    refused = ("PodFeatureUnsupported", "Pod requires node features that are not available: VolumeBindMountOptions")
    assert verdict("1.37", gate=True, runtime=True) == ("", "")
    assert verdict("1.37", gate=True, runtime=False) == verdict("1.37", gate=False, runtime=True) == refused
    assert verdict("1.36", gate=False, runtime=False) == ("", "")


def test_an_admitted_pod_has_one_event_that_names_some_of_the_fields() -> None:
    play = Play(facts=MachineFacts(feature_gates=ALL_OFF, release="1.36"))
    play.want(every_field())
    play.run()
    play.start()
    play.run()
    more = len(FIELDS) - MAX_NAMED_FIELDS
    named = f"{', '.join(FIELDS[:MAX_NAMED_FIELDS])} and {more} more"
    text = f"The pod runs without {named}: their feature gates are off, or they are not supported"
    assert [event for event in play.events if "Gate" in event] == [f"Warning FeatureGateDisabled: {text}"]


def test_a_pod_without_such_fields_has_no_event() -> None:
    assert event_message(unheeded_fields(a_pod(), ALL_OFF, "1.36")) == ""


def test_podsync_reads_each_gate_of_the_table() -> None:
    gates = {row.gate for row in GATED_FIELDS if row.gate}
    assert set(node_facts_reader._FIELD_GATES) == gates <= EVERY_GATE
    assert all("podsync" in GATE_READERS[gate] for gate in gates)


def test_the_page_repeats_the_table() -> None:
    part = text_of("docs/limits.md").partition("## Fields that a pod runs without")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| ")][1:]
    shown = [(row[0].strip().replace("`", ""), row[1].strip().strip("`")) for row in rows]
    assert shown == [(row.shown, row.gate or "not built") for row in GATED_FIELDS]
