"""What a certificate is to hold, when it is due, what its request is called and what becomes of it."""

import base64
import hashlib
from typing import Any

import pytest

from services.bootstrap.core.certificate_template import (
    CertificateFacts,
    client_template,
    covers,
    demands_key_encipherment,
    serving_template,
    usages,
)
from services.bootstrap.core.client_plan import ClientPlan, asks_as_node, plan_client
from services.bootstrap.core.kubeconfig_document import written_kubeconfig
from services.bootstrap.core.rotation import attempt_delay, deadline_of_new, is_due, rotation_deadline
from services.bootstrap.core.signing_request import (
    CsrOutcome,
    deterministic_name,
    generated_name,
    is_well_formed,
    request_object,
    request_text,
    state_of,
)

CLIENT = client_template("n1")


@pytest.mark.parametrize(
    ("rotate", "given", "valid", "plan"),
    [
        (False, False, False, ClientPlan.AS_IS),
        (False, False, True, ClientPlan.AS_IS),
        (False, True, True, ClientPlan.AS_IS),
        (False, True, False, ClientPlan.BOOTSTRAP_ONCE),
        (True, False, False, ClientPlan.MANAGED),
        (True, False, True, ClientPlan.MANAGED),
        (True, True, True, ClientPlan.MANAGED),
        (True, True, False, ClientPlan.BOOTSTRAP_MANAGED),
    ],
)
def test_the_plan(rotate: bool, given: bool, valid: bool, plan: ClientPlan) -> None:
    assert plan_client(rotate=rotate, bootstrap_given=given, still_valid=valid) is plan


@pytest.mark.parametrize(
    ("valid", "refused", "usable", "own"),
    [
        (True, False, True, True),
        (True, True, True, False),
        (True, True, False, True),
        (False, False, True, False),
        (False, False, False, False),
    ],
)
def test_as_whom_to_ask(valid: bool, refused: bool, usable: bool, own: bool) -> None:
    assert asks_as_node(own_valid=valid, own_refused=refused, bootstrap_usable=usable) is own


@pytest.mark.parametrize(
    ("addresses", "dns_only", "expected"),
    [
        ([], False, None),
        ([("Hostname", "n1")], False, None),
        ([("Hostname", "n1")], True, (("n1",), ())),
        ([("Hostname", "10.0.0.9")], False, ((), ("10.0.0.9",))),
        ([("InternalIP", "10.0.0.2"), ("ExternalIP", "10.0.0.1")], False, ((), ("10.0.0.1", "10.0.0.2"))),
        ([("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.1"), ("Hostname", "n1")], False, (("n1",), ("10.0.0.1",))),
        ([("InternalDNS", "b"), ("ExternalDNS", "a"), ("InternalIP", "fd00::0001")], False, (("a", "b"), ("fd00::1",))),
        ([("InternalIP", "no address"), ("InternalIP", "fe80::1%eth0"), ("Hostname", "")], True, None),
        ([("InternalIP", "::ffff:10.0.0.1")], False, ((), ("10.0.0.1",))),
        ([("SomethingNew", "10.0.0.1")], True, None),
    ],
)
def test_the_names_of_the_serving_certificate(
    addresses: list[tuple[str, str]], dns_only: bool, expected: tuple[tuple[str, ...], tuple[str, ...]] | None
) -> None:
    listed = [{"type": kind, "address": text} for kind, text in addresses]
    found = serving_template("n1", listed, dns_only_allowed=dns_only)
    assert (None if found is None else (found.dns_names, found.addresses)) == expected


def facts(**more: Any) -> CertificateFacts:
    plain: dict[str, Any] = {"common_name": "system:node:n1", "organizations": ("system:nodes",)}
    return CertificateFacts(not_before=1000.0, not_after=2000.0, **{**plain, **more})


@pytest.mark.parametrize(
    ("held", "good"),
    [
        (facts(), True),
        (facts(organizations=("system:nodes", "more")), True),
        (facts(organizations=()), False),
        (facts(common_name="system:node:n2"), False),
        (facts(addresses=("10.0.0.1",)), True),
    ],
)
def test_what_covers_the_client_template(held: CertificateFacts, good: bool) -> None:
    assert covers(held, CLIENT) is good


def test_what_covers_a_serving_template() -> None:
    wanted = serving_template("n1", [{"type": "InternalIP", "address": "10.0.0.1"}], dns_only_allowed=False)
    assert wanted is not None
    assert covers(facts(addresses=("10.0.0.1", "10.0.0.2"), dns_names=("n1",)), wanted)
    assert not covers(facts(addresses=("10.0.0.2",)), wanted)


def test_the_deadline_is_between_70_and_90_percent() -> None:
    assert rotation_deadline(facts(), 0.0) == 1700.0
    assert rotation_deadline(facts(), 0.5) == pytest.approx(1800.0)
    assert rotation_deadline(facts(), 0.999999) == pytest.approx(1900.0, abs=0.01)


@pytest.mark.parametrize(
    ("held", "wall", "due"),
    [
        (None, 0.0, True),
        (facts(), 1799.0, False),
        (facts(), 1800.0, True),
        (facts(), 2001.0, True),
        (facts(organizations=()), 1001.0, True),
    ],
)
def test_when_a_certificate_is_due(held: CertificateFacts | None, wall: float, due: bool) -> None:
    assert is_due(held, CLIENT, 1800.0, wall) is due


def test_the_pauses_between_attempts() -> None:
    assert [attempt_delay(n, 0.0) for n in range(1, 8)] == [2, 4, 8, 16, 32, 32, 32]
    assert attempt_delay(1, 0.999) == pytest.approx(2.2, abs=0.001)
    assert [attempt_delay(n, 0.0, unreachable=True) for n in (1, 2, 3, 4, 500)] == [2, 4, 8, 8, 8]


def test_the_name_of_a_deterministic_request() -> None:
    def item(content: bytes) -> bytes:
        return base64.urlsafe_b64encode(content).rstrip(b"=") + b"|"

    parts = (b"key", b"system:node:n1", b"system:nodes", b"digital signature", b"client auth")
    digest = hashlib.new("sha512_256", b"".join(item(part) for part in parts)).digest()
    name = deterministic_name(b"key", CLIENT, encipherment=False)
    assert name == "node-csr-" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
    assert deterministic_name(b"key", CLIENT, encipherment=True) != name


def test_generated_names_look_as_the_api_servers() -> None:
    assert generated_name([0, 1, 26, 27, 700]) == "csr-bc9b8"


def test_what_is_sent() -> None:
    sent = request_object("csr-1", "PEM", CLIENT, encipherment=False, version="v1")
    assert sent["spec"] == {
        "request": base64.b64encode(b"PEM").decode(),
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth"],
    }
    assert usages(CLIENT, encipherment=True) == ("digital signature", "key encipherment", "client auth")


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ({"major": "1", "minor": "20"}, True),
        ({"major": "1", "minor": "26+"}, True),
        ({"major": "1", "minor": "27"}, False),
        ({"major": "1", "minor": "36"}, False),
        ({"major": "2", "minor": "0"}, False),
        ({}, False),
        ({"major": "x", "minor": None}, False),
    ],
)
def test_which_servers_demand_key_encipherment(version: dict[str, Any], wanted: bool) -> None:
    assert demands_key_encipherment(version) is wanted


def csr(uid: str = "u", certificate: str = "", **conditions: str) -> dict[str, Any]:
    listed = [{"type": kind, "reason": "R", "message": text} for kind, text in conditions.items()]
    encoded = {"certificate": base64.b64encode(certificate.encode()).decode()} if certificate else {}
    return {"metadata": {"name": "csr-1", "uid": uid}, "status": {"conditions": listed, **encoded}}


@pytest.mark.parametrize(
    ("found", "outcome", "line"),
    [
        (csr(), CsrOutcome.PENDING, "waits for approval"),
        ({"metadata": {"name": "csr-1", "uid": "u"}}, CsrOutcome.PENDING, "waits for approval"),
        (csr(Approved=""), CsrOutcome.PENDING, "waits for its signer"),
        (csr(certificate="PEM"), CsrOutcome.PENDING, "waits for approval"),
        (csr(Approved="", certificate="PEM"), CsrOutcome.ISSUED, ""),
        (csr(Denied="go\naway"), CsrOutcome.DENIED, "csr-1 was denied: R: go away ("),
        (csr(Approved="", Denied="no"), CsrOutcome.DENIED, "was denied"),
        (csr(Approved="", Failed="x" * 500), CsrOutcome.FAILED, "failed at its signer: R: xxx"),
        (csr(uid="other"), CsrOutcome.GONE, "another client's"),
        (None, CsrOutcome.GONE, "was deleted"),
    ],
)
def test_what_becomes_of_a_request(found: dict[str, Any] | None, outcome: CsrOutcome, line: str) -> None:
    state = state_of(found, "u")
    assert state.outcome is outcome
    assert line in state.line
    assert len(state.line) < 320
    assert state.certificate == ("PEM" if outcome is CsrOutcome.ISSUED else "")


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ({"server": "s", "certificate-authority": "ca.crt"}, {"server": "s", "certificate-authority": "/etc/b/ca.crt"}),
        ({"server": "s", "certificate-authority": "/ca"}, {"server": "s", "certificate-authority": "/ca"}),
        (
            {"server": "s", "certificate-authority": "/ca", "certificate-authority-data": "eA=="},
            {"server": "s", "certificate-authority-data": "eA=="},
        ),
        (
            {"server": "s", "insecure-skip-tls-verify": True, "extensions": []},
            {"server": "s", "insecure-skip-tls-verify": True},
        ),
    ],
)
def test_the_written_kubeconfig(cluster: dict[str, Any], expected: dict[str, Any]) -> None:
    document = written_kubeconfig(cluster, "/etc/b", "/pki/current.pem")
    assert document["clusters"] == [{"name": "default-cluster", "cluster": expected}]
    user = {"client-certificate": "/pki/current.pem", "client-key": "/pki/current.pem"}
    assert document["users"] == [{"name": "default-auth", "user": user}]
    context = {"cluster": "default-cluster", "namespace": "default", "user": "default-auth"}
    assert document["contexts"] == [{"name": "default-context", "context": context}]
    assert (document["current-context"], document["kind"]) == ("default-context", "Config")


@pytest.mark.parametrize(
    ("wall", "deadline", "expected"),
    [
        (1000.0, 1700.0, 1700.0),
        (1900.0, 1700.0, 1950.0),  # due as it came: half of what is left
        (1970.0, 1700.0, 1700.0),  # too little for that
    ],
)
def test_a_new_certificate_serves_for_half_of_what_is_left_at_least(
    wall: float, deadline: float, expected: float
) -> None:
    assert deadline_of_new(facts(), deadline, wall) == expected


def test_what_is_a_request_at_all(subtests: pytest.Subtests) -> None:
    for csr, expected in [
        ({"metadata": {"name": "a", "uid": "u"}}, True),
        ({"metadata": {"name": "a", "uid": "u"}, "spec": None, "status": {"conditions": None}}, True),
        ({"metadata": {"name": "a"}}, False),
        ({"metadata": {"name": "a", "uid": 5}}, False),
        ({"metadata": []}, False),
        ({}, False),
        ([], False),
        (5, False),
        ({"metadata": {"name": "a", "uid": "u"}, "status": 5}, False),
        ({"metadata": {"name": "a", "uid": "u"}, "spec": "x"}, False),
        ({"metadata": {"name": "a", "uid": "u"}, "status": {"conditions": {}}}, True),
        ({"metadata": {"name": "a", "uid": "u"}, "status": {"conditions": {"a": 1}}}, False),
    ]:
        with subtests.test(f"{csr!r:.80}"):
            assert is_well_formed(csr) is expected


@pytest.mark.parametrize("text", ["ä", "%", 5, [1], None, "/w=="])
def test_a_request_that_is_no_base64_is_none(text: object) -> None:
    assert request_text({"spec": {"request": text}}) == ""
