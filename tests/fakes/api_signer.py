"""Approver and signers of the API server's double: what people and kube-controller-manager do to certificate requests.

Nothing happens by itself: a test approves, denies, issues or has all of it done for what is there.
"""

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from shared.model.objects import Object
from tests.fakes.api_resources import target_of
from tests.fakes.api_server import FakeApiServer

_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "signer")])


class Signer:
    """Certificates end `lifetime` seconds from now and began `backdate` seconds ago; `drops_names`: without SANs."""

    def __init__(
        self, server: FakeApiServer, *, version: str = "v1", lifetime: float = 86400.0, backdate: float = 300.0
    ) -> None:
        self.server, self.lifetime, self.backdate = server, lifetime, backdate
        self.drops_names = False
        self.path = f"/apis/certificates.k8s.io/{version}/certificatesigningrequests"
        self._key = ec.generate_private_key(ec.SECP256R1())

    def requests(self) -> list[Object]:
        """All there are, oldest first."""
        found = [obj for _, obj in self.server.store.below(target_of(self.path))]
        return sorted(found, key=lambda csr: int(csr["metadata"]["resourceVersion"]))

    def open(self) -> list[Object]:
        """Those without a condition."""
        return [csr for csr in self.requests() if not csr["status"].get("conditions")]

    def serve(self) -> int:
        """Approve and issue all that are open; how many."""
        found = self.open()
        for csr in found:
            self.approve(csr)
            self.issue(csr)
        return len(found)

    def approve(self, csr: Object) -> None:
        """As kube-controller-manager does."""
        self._condition(csr, "Approved", "AutoApproved", "Auto approving kubelet client certificate.")

    def deny(self, csr: Object, message: str = "not one of ours") -> None:
        """As a person does."""
        self._condition(csr, "Denied", "KubectlDeny", message)

    def fail(self, csr: Object, message: str) -> None:
        """As a signer does that was given what it does not sign."""
        self._condition(csr, "Failed", "SignerValidationFailure", message)

    def issue(self, csr: Object, *, certificate: str = "") -> None:
        """Sign it, or answer with this text."""
        text = certificate or self.sign(csr)
        self._status(csr, {"certificate": base64.b64encode(text.encode()).decode()})

    def delete(self, csr: Object) -> None:
        """As a person, or as time does."""
        self.server.delete(f"{self.path}/{csr['metadata']['name']}")

    def delete_all(self) -> None:
        """None is left."""
        for csr in self.requests():
            self.delete(csr)

    def sign(self, csr: Object) -> str:
        """The certificate, PEM."""
        request = x509.load_pem_x509_csr(base64.b64decode(csr["spec"]["request"]))
        assert request.is_signature_valid
        now = datetime.fromtimestamp(self.server.clock.wall(), UTC)
        builder = x509.CertificateBuilder(
            issuer_name=_NAME,
            subject_name=request.subject,
            public_key=request.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(seconds=self.backdate),
            not_valid_after=now + timedelta(seconds=self.lifetime),
        )
        for extension in () if self.drops_names else request.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()

    def _condition(self, csr: Object, kind: str, reason: str, message: str) -> None:
        before: Sequence[Object] = self._now(csr)["status"].get("conditions") or ()
        condition = {"type": kind, "status": "True", "reason": reason, "message": message}
        self._status(csr, {"conditions": [*before, condition]})

    def _status(self, csr: Object, change: Object) -> None:
        found = self._now(csr)
        self.server.put(f"{self.path}/{csr['metadata']['name']}", {**found, "status": {**found["status"], **change}})

    def _now(self, csr: Object) -> Object:
        found = self.server.get(f"{self.path}/{csr['metadata']['name']}")
        assert found is not None
        return found
