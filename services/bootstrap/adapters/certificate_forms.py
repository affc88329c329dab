"""Makes and reads keys, requests and certificates; it imports `cryptography`, so only the child process calls it.

It reads no file and sends nothing. Errors are ProblemErrors of one line that quotes no key.
"""

import base64
import ipaddress
import warnings
from typing import TYPE_CHECKING

from msgspec import Struct

from services.bootstrap.adapters.resolved_credentials import ProblemError
from services.bootstrap.core.certificate_template import CertificateFacts, Template

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes


class CertificateRequest(Struct, frozen=True, kw_only=True):
    """A PKCS#10 request and its key, both PEM; secret. `is_rsa`: its usages always include `key encipherment`."""

    key: str
    request: str
    public_key: str  # DER (PKIX), base64
    is_rsa: bool = False

    def __repr__(self) -> str:
        return "CertificateRequest(…)"


class InspectedPair(Struct, frozen=True, kw_only=True):
    """The facts of a pair. `chain`: only its certificates, the leaf first, PEM; `key`: the block of the key."""

    facts: CertificateFacts
    chain: str
    key: str

    def __repr__(self) -> str:
        return f"InspectedPair({self.facts!r})"


class CertificateForms:
    """Makes and reads requests and certificates in this process."""

    def make(self, template: Template, key: str = "") -> CertificateRequest:
        """Make a request with this key (PEM), or with a new ECDSA P-256 key. Raises ProblemError."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.x509.oid import NameOID

        private: PrivateKeyTypes = _private_key(key) if key else ec.generate_private_key(ec.SECP256R1())
        if not isinstance(private, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey, ed25519.Ed25519PrivateKey)):
            raise ProblemError("the key is of a kind that signs no requests (remove it to have one made)")
        attributes = [(NameOID.ORGANIZATION_NAME, one) for one in template.organizations]
        attributes.append((NameOID.COMMON_NAME, template.common_name))
        with warnings.catch_warnings():  # a node name may be longer than X.520's 64 characters
            warnings.simplefilter("ignore")
            subject = x509.Name([x509.NameAttribute(oid, text, _validate=False) for oid, text in attributes])
        builder = x509.CertificateSigningRequestBuilder(subject)
        try:
            alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in template.dns_names]
        except ValueError:
            names = ", ".join(template.dns_names)
            raise ProblemError(f"one of {names} is no DNS name (correct status.addresses of the Node)") from None
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in template.addresses]
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        own_digest = isinstance(private, (ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey))
        request = builder.sign(private, None if own_digest else hashes.SHA256())
        form = PrivateFormat.PKCS8 if own_digest else PrivateFormat.TraditionalOpenSSL
        return CertificateRequest(
            key=private.private_bytes(Encoding.PEM, form, NoEncryption()).decode(),
            request=request.public_bytes(Encoding.PEM).decode(),
            public_key=base64.b64encode(_der(private.public_key())).decode(),
            is_rsa=isinstance(private, rsa.RSAPrivateKey),
        )

    def inspect(self, certificate: str, key: str) -> InspectedPair:
        """Look at a pair, each text with the blocks of either. Raises ProblemError when they are none together."""
        from cryptography.hazmat.primitives.serialization import Encoding

        leaf, *rest = _certificates(certificate)
        private = _private_key(key)
        if _der(leaf.public_key()) != _der(private.public_key()):
            raise ProblemError("the key is not the key of the certificate")
        return InspectedPair(
            facts=_facts(leaf),
            chain="".join(one.public_bytes(Encoding.PEM).decode() for one in (leaf, *rest)),
            key=_key_block(key),
        )

    def is_ours(self, request: str, key: str, template: Template) -> bool:
        """Return whether a PKCS#10 request was made with this key, for the template's subject."""
        from cryptography import x509
        from cryptography.x509.oid import NameOID

        try:
            found = x509.load_pem_x509_csr(request.encode())
            signed = found.is_signature_valid
        except Exception:  # the library raises many types of exceptions for invalid encodings
            return False
        names = [str(one.value) for one in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        organizations = [str(one.value) for one in found.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
        same_subject = names == [template.common_name] and sorted(organizations) == sorted(template.organizations)
        return signed and same_subject and _der(found.public_key()) == _der(_private_key(key).public_key())


def _certificates(text: str) -> list["x509.Certificate"]:
    from cryptography.x509 import load_pem_x509_certificates

    try:
        return load_pem_x509_certificates(text.encode())
    except ValueError:
        raise ProblemError("holds no PEM certificate") from None


def _private_key(text: str) -> "PrivateKeyTypes":
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(_key_block(text).encode(), password=None)
    except (ValueError, TypeError):
        raise ProblemError("holds no unencrypted PEM private key") from None


def _key_block(text: str) -> str:
    """Return the first private key of a text that may also contain certificates and curve parameters; "" = none."""
    kept: list[str] = []
    for line in text.splitlines():
        if line.startswith("-----BEGIN ") and "PRIVATE KEY" in line:
            kept = [line]
        elif kept:
            kept.append(line)
            if line.startswith("-----END "):
                return "\n".join(kept) + "\n"
    return ""


def _der(public: "PublicKeyTypes") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _facts(leaf: "x509.Certificate") -> CertificateFacts:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    names = [str(one.value) for one in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    try:
        alternatives = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        alternatives = x509.SubjectAlternativeName([])
    return CertificateFacts(
        not_before=leaf.not_valid_before_utc.timestamp(),
        not_after=leaf.not_valid_after_utc.timestamp(),
        common_name=names[-1] if names else "",
        organizations=tuple(str(one.value) for one in leaf.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)),
        dns_names=tuple(alternatives.get_values_for_type(x509.DNSName)),
        addresses=tuple(str(one) for one in alternatives.get_values_for_type(x509.IPAddress)),
    )
