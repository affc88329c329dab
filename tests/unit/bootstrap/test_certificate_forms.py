"""Keys, requests and pairs in their encoded forms, in this process and in the child."""

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from services.bootstrap.adapters.certificate_child import CertificateChild
from services.bootstrap.adapters.certificate_forms import CertificateForms
from services.bootstrap.adapters.resolved_credentials import ProblemError
from services.bootstrap.core.certificate_template import (
    SERVING_SIGNER,
    Template,
    client_template,
    serving_template,
)
from tests.unit.kube.tls_world import Authority

FORMS = CertificateForms()
CLIENT = client_template("n1")
CA = Authority()
PAIR, OTHER = CA.issue("system:node:n1", organization="system:nodes"), CA.issue("system:node:n1")
FORM = (Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())


def test_a_request_has_subject_names_and_a_key_of_its_own() -> None:
    template = Template(
        signer=SERVING_SIGNER,
        common_name="system:node:" + "n" * 100,
        purpose="server auth",
        dns_names=("n1",),
        addresses=("10.0.0.1", "fd00::1"),
    )
    made = FORMS.make(template)
    request = x509.load_pem_x509_csr(made.request.encode())
    assert request.is_signature_valid
    with pytest.warns(UserWarning, match="64"):  # X.520's limit, which no kubelet knows
        subject = request.subject.rfc4514_string()
    assert subject == f"CN=system:node:{'n' * 100},O=system:nodes"
    names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["n1"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "fd00::1"]
    key = load_pem_private_key(made.key.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp256r1"
    assert made.key.startswith("-----BEGIN EC PRIVATE KEY-----")
    assert FORMS.make(template).key != made.key
    assert "PRIVATE" not in repr(made)


@pytest.mark.long
def test_a_key_is_used_again_whatever_stands_around_it() -> None:
    first = FORMS.make(CLIENT)
    again = FORMS.make(CLIENT, PAIR.certificate.decode() + "junk\n" + first.key)
    assert (again.key, again.public_key) == (first.key, first.public_key)
    assert not list(x509.load_pem_x509_csr(first.request.encode()).extensions)
    old = rsa.generate_private_key(65537, 2048).private_bytes(*FORM).decode()
    assert FORMS.make(CLIENT, old).is_rsa


def test_whose_request_it_is() -> None:
    made = FORMS.make(CLIENT)
    assert FORMS.is_ours(made.request, made.key, CLIENT)
    assert not FORMS.is_ours(made.request, FORMS.make(CLIENT).key, CLIENT)
    assert not FORMS.is_ours(made.request, made.key, client_template("n2"))
    assert not FORMS.is_ours("nonsense", made.key, CLIENT)


def test_the_subject_and_times_of_a_pair() -> None:
    text = (PAIR.key + b"# between\n" + PAIR.certificate + CA.pem).decode()
    found = FORMS.inspect(text, text)
    assert (found.facts.common_name, found.facts.organizations) == ("system:node:n1", ("system:nodes",))
    assert (found.facts.dns_names, found.facts.addresses) == (("api.test",), ("127.0.0.1",))
    assert found.facts.not_before < found.facts.not_after
    assert found.chain.encode() == PAIR.certificate + CA.pem
    assert "PRIVATE" not in repr(found)


@pytest.mark.share(2)
@pytest.mark.parametrize("forms", [FORMS, CertificateChild()], ids=["here", "in the child"])
@pytest.mark.parametrize(
    ("certificate", "key", "line"),
    [
        ("", PAIR.key.decode(), "holds no PEM certificate"),
        (PAIR.certificate.decode()[:300], PAIR.key.decode(), "holds no PEM certificate"),
        (PAIR.certificate.decode(), "", "holds no unencrypted PEM private key"),
        (PAIR.certificate.decode(), PAIR.key.decode()[:100], "holds no unencrypted PEM private key"),
        (PAIR.certificate.decode(), OTHER.key.decode(), "the key is not the key of the certificate"),
    ],
)
def test_what_is_no_pair(forms: CertificateForms, certificate: str, key: str, line: str) -> None:
    with pytest.raises(ProblemError) as caught:
        forms.inspect(certificate, key)
    assert str(caught.value) == line


def test_the_child_does_the_same() -> None:
    child = CertificateChild()
    made = child.make(CLIENT)
    assert child.is_ours(made.request, made.key, CLIENT)
    pair = (PAIR.certificate.decode(), PAIR.key.decode())
    assert child.inspect(*pair) == FORMS.inspect(*pair)


def test_a_name_that_no_certificate_can_hold_is_a_clear_line() -> None:
    template = serving_template("n1", [{"type": "ExternalDNS", "address": "nöde"}], dns_only_allowed=True)
    assert template is not None
    with pytest.raises(ProblemError, match="one of nöde is no DNS name"):
        CertificateForms().make(template)
