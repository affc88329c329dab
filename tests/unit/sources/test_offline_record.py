"""What the record for a start without API server holds, and what is left out."""

from typing import Any

import msgspec
import pytest
from msgspec import to_builtins

from bus.messages.sources import FoundObject, GetObject
from services.sources.core.offline_record import (
    MAX_SHARED_OBJECTS,
    FilledRecord,
    KeptAnswer,
    Key,
    decode,
    fill_record,
    kept_answer,
)
from shared.model import objects
from shared.model.objects import Object
from shared.text.json_text import json_bytes

LIMIT = 1 << 20


def pod(name: str, secret: str = "", priority: int = 0, claim: str = "") -> Object:
    """A pod that names a Secret in a volume, and a claim."""
    volumes: list[Object] = [{"name": "s", "secret": {"secretName": secret}}] if secret else []
    volumes += [{"name": "c", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    spec = {"priority": priority, "containers": [{"name": "c"}], "volumes": volumes}
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "spec": spec}


def answers(*kept: KeptAnswer) -> dict[Key, KeptAnswer]:
    """As they were requested, in this order."""
    return {answer.key: answer for answer in kept}


def secret(name: str, size: int = 10, kind: str = "Secret", space: str = "default") -> KeptAnswer:
    """A Secret of so many bytes."""
    return KeptAnswer(kind, space, name, {"data": {"password": "x" * size}})


def fill(pods: list[Object], known: dict[Key, KeptAnswer], limit: int = LIMIT) -> FilledRecord:
    """The record of these pods."""
    return fill_record(pods, {"metadata": {"name": "n1"}}, known, {"default": []}, limit)


def names(filled: FilledRecord) -> list[str]:
    """Its pods."""
    return [objects.name(one) for one in filled.data.pods]


def test_only_secrets_that_a_pod_names_are_kept() -> None:
    known = answers(secret("of-web"), secret("of-nobody"), KeptAnswer("CSIDriver", "", "csi.example", {"spec": {}}))
    filled = fill([pod("web", "of-web")], known)
    assert {answer.name for answer in filled.data.answers} == {"of-web", "csi.example"}
    assert filled.unneeded == {("Secret", "default", "of-nobody")} and not filled.left_out


def test_pods_come_before_services_and_objects_that_all_share() -> None:
    bundles = answers(*(KeptAnswer("ClusterTrustBundle", "", f"b{n}", {"spec": "x" * 300_000}) for n in range(10)))
    services = {"default": [{"metadata": {"name": "x" * 100_000}}]}
    filled = fill_record([pod("web")], None, bundles, services, LIMIT)
    assert names(filled) == ["web"] and not filled.left_out and filled.data.services == services
    assert [answer.name for answer in filled.data.answers] == ["b7", "b8", "b9"], "those requested last"
    assert len(json_bytes(to_builtins(filled.data))) <= LIMIT
    assert not filled.unneeded


def test_a_claim_brings_its_volume_and_the_secrets_of_the_driver() -> None:
    volume = {"spec": {"csi": {"nodePublishSecretRef": {"name": "driver", "namespace": "kube-system"}}}}
    known = answers(
        KeptAnswer("PersistentVolumeClaim", "default", "data", {"spec": {"volumeName": "pv"}}),
        KeptAnswer("PersistentVolumeClaim", "other", "data", {"spec": {"volumeName": "pv2"}}),
        KeptAnswer("PersistentVolume", "", "pv", volume),
        KeptAnswer("PersistentVolume", "", "pv2", volume),
        secret("driver", kind="VolumeSecret", space="kube-system"),
        secret("another", kind="VolumeSecret", space="kube-system"),
    )
    filled = fill([pod("web", claim="data")], known)
    assert {answer.key for answer in filled.data.answers} == {
        ("PersistentVolumeClaim", "default", "data"),
        ("PersistentVolume", "", "pv"),
        ("VolumeSecret", "kube-system", "driver"),
    }


@pytest.mark.parametrize("reference", [{"name": "driver"}, {"name": "driver", "namespace": "default"}])
def test_a_claim_brings_the_secret_of_a_flex_volume(reference: dict[str, str]) -> None:
    volume = {"spec": {"flexVolume": {"driver": "acme/disk", "secretRef": reference}}}
    known = answers(
        KeptAnswer("PersistentVolumeClaim", "default", "data", {"spec": {"volumeName": "pv"}}),
        KeptAnswer("PersistentVolume", "", "pv", volume),
        secret("driver", kind="VolumeSecret"),
        secret("driver", kind="VolumeSecret", space="other"),
    )
    filled = fill([pod("web", claim="data")], known)
    assert ("VolumeSecret", "default", "driver") in {answer.key for answer in filled.data.answers}
    assert len(filled.data.answers) == 3


def test_without_room_pods_of_low_priority_are_left_out_and_their_answers_stay_known() -> None:
    known = answers(*(secret(name, 400_000) for name in ("a", "b", "c")))
    filled = fill([pod("low", "a", 1), pod("high", "b", 9), pod("middle", "c", 5)], known)
    assert names(filled) == ["high", "middle"] and filled.left_out == ["low_default(uid-low)"]
    assert {answer.name for answer in filled.data.answers} == {"b", "c"} and not filled.unneeded
    assert len(msgspec.json.encode(filled.data)) < LIMIT


def test_a_secret_of_several_pods_counts_once() -> None:
    filled = fill([pod(f"pod-{number}", "shared") for number in range(10)], answers(secret("shared", 600_000)))
    assert len(filled.data.pods) == 10 and len(filled.data.answers) == 1


def test_a_pod_with_an_object_that_is_too_large_is_left_out() -> None:
    filled = fill([pod("web", "huge"), pod("other")], answers(secret("huge", 3 << 20)), 64 << 20)
    assert names(filled) == ["other"] and filled.left_out == ["web_default(uid-web)"]


def test_of_objects_without_secrets_the_last_ones_are_kept() -> None:
    known = answers(*(KeptAnswer("RuntimeClass", "", f"class-{n}", {}) for n in range(MAX_SHARED_OBJECTS + 5)))
    filled = fill([], known)
    assert [answer.name for answer in filled.data.answers] == [f"class-{n}" for n in range(5, MAX_SHARED_OBJECTS + 5)]
    assert filled.unneeded == {("RuntimeClass", "", f"class-{n}") for n in range(5)}


def test_the_record_is_read_as_it_was_written() -> None:
    absent = KeptAnswer("ConfigMap", "default", "optional", None, 'configmap "optional" not found')
    filled = fill([pod("web", "a")], answers(secret("a"), absent))
    read = decode(msgspec.to_builtins(filled.data))
    assert read == filled.data
    assert absent.found == FoundObject(object=None, not_found=True, error='configmap "optional" not found')


@pytest.mark.parametrize("content", [{}, {"version": 2}, {"version": 1, "pods": [1]}, {"version": 1, "answers": {}}])
def test_another_form_is_not_understood(content: dict[str, Any]) -> None:
    assert decode(content) is None


@pytest.mark.parametrize(
    ("kind", "found", "kept"),
    [
        ("Secret", FoundObject(object={"data": {}}), True),
        ("Secret", FoundObject(object=None, not_found=True, error="not found"), True),
        ("Secret", FoundObject(object=None, error="timed out"), False),
        ("VolumeAttachment", FoundObject(object={}), False),
        ("PodCertificateRequest", FoundObject(object={}), False),
        ("Node", FoundObject(object={}), False),
    ],
)
def test_an_answer_is_kept_where_the_api_server_gave_it_and_it_stays_true(
    kind: str, found: FoundObject, kept: bool
) -> None:
    assert (kept_answer(GetObject(kind=kind, namespace="default", name="a"), found) is not None) == kept


def test_no_representation_shows_a_secret() -> None:
    assert "xxx" not in repr(secret("a")) + str(fill([], {}))
