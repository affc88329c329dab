"""Certificates of pods: when one is requested, what its result means, when it is renewed, and its files."""

import base64
import math
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from services.volume.adapters.certificate_keys import new_key
from services.volume.core.files.pod_certificates import (
    ABANDON_AFTER_SECONDS,
    JITTER_SECONDS,
    LOOK_SECONDS,
    OVERDUE_AFTER_SECONDS,
    CertificateKey,
    CertificatePart,
    Credential,
    Projection,
    Step,
    aged,
    answered,
    certificate_part,
    files_of,
    look_again_at,
    next_step,
    request_spec,
    requested,
    state_of,
)

POD = {"namespace": "shop", "name": "web", "uid": "u", "service_account": "builder"}
SOURCE = {"signerName": "example.com/ca", "keyType": "ED25519", "credentialBundlePath": "bundle.pem"}
KEY = certificate_part(POD, "v", 2, SOURCE).key
NOW = 1_800_000_000.0
CHAIN = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
BEGIN, END = "2027-01-15T10:00:00Z", "2027-01-15T12:00:00Z"  # 2 and 4 hours after NOW


def result(kind: str = "Issued", **status: Any) -> dict[str, Any]:
    condition = {"type": kind, "status": "True", "reason": "Because", "message": 'no "x"'}
    dates = {"beginRefreshAt": BEGIN, "notAfter": END, "certificateChain": f"text\n{CHAIN}"}
    return {"status": {"conditions": [condition], **dates, **status}}


def pending() -> Projection:
    return requested(Projection(), "req-1", b"key", wall=NOW, chance=0.5)


def issued() -> Projection:
    return answered(pending(), result(), KEY, wall=NOW, chance=0.5)[0]


def test_a_certificate_is_requested_once_read_until_it_is_issued_and_renewed_when_it_is_due() -> None:
    assert next_step(Projection(), NOW) is Step.REQUEST
    assert next_step(pending(), NOW) is Step.READ
    still, events = answered(pending(), {"status": {}}, KEY, wall=NOW, chance=0.5)
    assert (still, events) == (pending(), ())
    fresh = issued()
    assert fresh == Projection(Credential(b"key", CHAIN.encode(), NOW + 7200 + JITTER_SECONDS / 2, NOW + 14400))
    assert next_step(fresh, NOW + 7200) is Step.NOTHING
    due = NOW + 7200 + JITTER_SECONDS / 2
    assert look_again_at(fresh, NOW) == due
    assert next_step(fresh, due) is Step.REQUEST
    renewing = requested(fresh, "req-2", b"new", wall=due, chance=0.0)
    assert renewing.credential == fresh.credential
    assert next_step(renewing, due) is Step.READ
    renewed, _ = answered(renewing, result(), KEY, wall=due, chance=0.0)
    assert renewed.credential is not None and renewed.credential.private_key == b"new"
    assert renewed.pending is None


def test_a_certificate_that_is_due_when_it_is_issued_is_renewed_once_a_minute() -> None:
    late, _ = answered(pending(), result(beginRefreshAt="2020-01-01T00:00:00Z"), KEY, wall=NOW, chance=0.5)
    assert next_step(late, NOW) is Step.REQUEST
    assert look_again_at(late, NOW) == NOW + LOOK_SECONDS


def test_a_request_that_vanished_is_made_again_after_ten_minutes() -> None:
    until = NOW + ABANDON_AFTER_SECONDS + JITTER_SECONDS / 2
    assert answered(pending(), None, KEY, wall=until, chance=0.0) == (pending(), ())
    gone, _ = answered(pending(), None, KEY, wall=until + 1, chance=0.0)
    assert next_step(gone, until + 1) is Step.REQUEST


@pytest.mark.parametrize("kind", ["Denied", "Failed"])
def test_a_request_that_was_denied_or_failed_is_final_and_an_event(kind: str) -> None:
    refused, (event,) = answered(pending(), result(kind), KEY, wall=NOW, chance=0.0)
    words = f'PodCertificateRequest was permanently {kind.lower()}: reason="Because" message="no \\"x\\""'
    assert refused == Projection(refused=words, ended=kind.lower())
    assert (event.type, event.reason, event.message) == ("Warning", kind, 'Because%!(EXTRA string=no "x")')
    assert (event.namespace, event.name, event.uid) == ("shop", "web", "u")
    assert next_step(refused, NOW + 1e9) is Step.NOTHING
    assert look_again_at(refused, NOW) == math.inf


def test_a_certificate_that_is_not_renewed_is_reported_once_late_and_once_expired() -> None:
    fresh = issued()
    due = NOW + 7200 + JITTER_SECONDS / 2
    assert aged(fresh, KEY, due + OVERDUE_AFTER_SECONDS) == (fresh, ())
    late, events = aged(fresh, KEY, due + OVERDUE_AFTER_SECONDS + 1)
    assert [(event.reason, event.message) for event in events] == [
        ("CertificateOverdueForRefresh", "PodCertificate refresh overdue")
    ]
    assert aged(late, KEY, due + OVERDUE_AFTER_SECONDS + 2) == (late, ())
    _, events = aged(late, KEY, NOW + 14401)
    assert [(event.reason, event.message) for event in events] == [("CertificateExpired", "PodCertificate expired")]
    assert next_step(late, NOW + 14401) is Step.REQUEST


def test_the_state_is_named_as_in_the_kubelets_metric() -> None:
    due = NOW + 7200 + JITTER_SECONDS / 2
    states = [state_of(issued(), wall) for wall in (NOW, due + OVERDUE_AFTER_SECONDS + 1, NOW + 14401)]
    assert states == ["fresh", "overdue_for_refresh", "expired"]
    assert state_of(Projection(), NOW) == state_of(pending(), NOW) == "not_yet_issued"
    for kind in ("Denied", "Failed"):
        refused, _ = answered(pending(), result(kind), KEY, wall=NOW, chance=0.0)
        assert state_of(refused, NOW) == kind.lower()


def test_the_files_are_bundle_key_and_chain() -> None:
    credential = Credential(b"key\n", b"chain\n", 0.0, 0.0)
    assert files_of(CertificatePart(KEY, "b", "k", "c"), credential) == {
        "b": b"key\nchain\n",
        "k": b"key\n",
        "c": b"chain\n",
    }
    assert files_of(CertificatePart(KEY, "b"), credential) == {"b": b"key\nchain\n"}


def test_the_request_has_what_the_pod_asks_for() -> None:
    more = {"maxExpirationSeconds": 86400, "userAnnotations": {"example.com/b": "2", "example.com/a": "1"}}
    key = certificate_part(POD, "v", 0, {**SOURCE, **more}).key
    assert request_spec(key, account_uid="a", node="n", node_uid="nu", stub="MII=") == {
        "signerName": "example.com/ca",
        "podName": "web",
        "podUID": "u",
        "serviceAccountName": "builder",
        "serviceAccountUID": "a",
        "nodeName": "n",
        "nodeUID": "nu",
        "stubPKCS10Request": "MII=",
        "maxExpirationSeconds": 86400,
        "unverifiedUserAnnotations": {"example.com/a": "1", "example.com/b": "2"},
    }


@pytest.mark.parametrize("source", [{}, {"signerName": 3, "userAnnotations": [1], "keyPath": {}}])
def test_a_source_of_any_shape_is_read(source: dict[str, Any]) -> None:
    assert isinstance(certificate_part(POD, "v", 0, source).key, CertificateKey)


@pytest.mark.parametrize("status", [None, 3, {"conditions": 3}, {"conditions": [3, {"type": "Issued"}]}])
def test_a_result_of_any_shape_is_read(status: Any) -> None:
    answered(pending(), {"status": status}, KEY, wall=NOW, chance=0.0)


@pytest.mark.parametrize("key_type", ["ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072"])
def test_each_key_signs_the_stub_of_its_request(key_type: str) -> None:
    key = new_key(key_type)
    assert key.private_key.startswith(b"-----BEGIN PRIVATE KEY-----\n")
    private = load_pem_private_key(key.private_key, None)
    stub = x509.load_der_x509_csr(base64.b64decode(key.stub))
    assert stub.is_signature_valid
    assert list(stub.subject) == []
    assert stub.public_key() == private.public_key()
    assert "PRIVATE" not in repr(key)


def test_another_type_of_key_is_an_error() -> None:
    with pytest.raises(ValueError, match='unknown key type "DSA"'):
        new_key("DSA")
