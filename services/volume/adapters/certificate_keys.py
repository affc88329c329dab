"""Makes private keys for certificates of pods, and the stub of a signing request that proves their possession.

Blocking: an RSA key of 4096 bits takes seconds.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
    Hash = hashes.SHA256 | hashes.SHA384 | hashes.SHA512


@dataclass(frozen=True)
class KeyAndRequest:
    """A new key and the stub of its signing request.

    `private_key`: PKCS#8 PEM; `stub`: the request, DER in base64; `digest`: SHA-256 of the public key, hexadecimal.
    """

    private_key: bytes = field(repr=False)
    stub: str
    digest: str


def new_key(key_type: str) -> KeyAndRequest:
    """Make a key of a type as keyType of a podCertificate names it. Raises ValueError for another type."""
    # Imported here, because on most nodes no pod requests a certificate: all services would share 3 MiB that none uses.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    types: Mapping[str, tuple[Callable[[], Key], Hash | None]] = {
        "RSA3072": (lambda: rsa.generate_private_key(65537, 3072), hashes.SHA256()),
        "RSA4096": (lambda: rsa.generate_private_key(65537, 4096), hashes.SHA256()),
        "ECDSAP256": (lambda: ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()),
        "ECDSAP384": (lambda: ec.generate_private_key(ec.SECP384R1()), hashes.SHA384()),
        "ECDSAP521": (lambda: ec.generate_private_key(ec.SECP521R1()), hashes.SHA512()),
        "ED25519": (ed25519.Ed25519PrivateKey.generate, None),
    }
    if key_type not in types:
        raise ValueError(f'unknown key type "{key_type}"')
    generate, algorithm = types[key_type]
    key = generate()
    stub = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, algorithm)
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return KeyAndRequest(
        private_key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        stub=base64.b64encode(stub.public_bytes(Encoding.DER)).decode(),
        digest=hashlib.sha256(public).hexdigest(),
    )
