"""Makes a CertificateSigningRequest and its name, and reads the later states of the object. Pure.

Rules: config.md 5.4 (names, waiting) and 5.6 (what the control plane expects).
"""

import base64
import hashlib
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from services.bootstrap.core.certificate_template import Template, usages
from shared.model.objects import Object, name, uid

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # from which the API server makes the ends of generated names
_MAX_SHOWN_CHARACTERS = 200  # of an approver's text


class CsrOutcome(StrEnum):
    """Says what has become of a certificate signing request in the API server."""

    PENDING = "pending"
    ISSUED = "issued"
    DENIED = "denied"
    FAILED = "failed"
    GONE = "gone"


class CsrState(Struct, frozen=True):
    """The state of a request. `certificate`: the PEM text of an issued one; `line`: the event and its remedy."""

    outcome: CsrOutcome
    certificate: str = ""
    line: str = ""


def generated_name(choices: Sequence[int]) -> str:
    """Return a name as the API server makes it for `generateName: csr-`, from five random numbers.

    It is chosen here and saved before the request is sent, so that the request is found again after a crash or a lost
    answer.
    """
    return "csr-" + "".join(_LETTERS[number % len(_LETTERS)] for number in choices[:5])


def deterministic_name(public_key: bytes, template: Template, *, encipherment: bool) -> str:
    """Return the name for a key (DER, PKIX) and a subject, so that a request that is made again has the same name."""
    parts = [public_key, template.common_name.encode(), *(one.encode() for one in template.organizations)]
    parts += [usage.encode() for usage in usages(template, encipherment=encipherment)]
    digest = hashlib.new("sha512_256", b"".join(_unpadded(part) + b"|" for part in parts), usedforsecurity=False)
    return "node-csr-" + _unpadded(digest.digest()).decode()


def _unpadded(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def request_object(request_name: str, request: str, template: Template, *, encipherment: bool, version: str) -> Object:
    """Return the object to create. `request`: the PEM text of the PKCS#10 request; `version`: v1 or v1beta1."""
    return {
        "apiVersion": f"certificates.k8s.io/{version}",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": request_name},
        "spec": {
            "request": base64.b64encode(request.encode()).decode(),
            "signerName": template.signer,
            "usages": list(usages(template, encipherment=encipherment)),
        },
    }


def request_text(csr: Object) -> str:
    """Return the PKCS#10 request in an object, PEM text; "" where it has none."""
    return _decoded((csr.get("spec") or {}).get("request"))


def signer_of(csr: Object) -> str:
    """Return the name of the signer."""
    return str((csr.get("spec") or {}).get("signerName") or "")


def is_well_formed(csr: object) -> bool:
    """Return whether an answer, which may come from a proxy, has the fields of a CertificateSigningRequest that are
    read here."""
    if not isinstance(csr, dict) or not all(isinstance(csr.get(key) or {}, dict) for key in ("spec", "status")):
        return False
    metadata, conditions = csr.get("metadata"), (csr.get("status") or {}).get("conditions") or []
    named = isinstance(metadata, dict) and all(isinstance(metadata.get(key), str) for key in ("name", "uid"))
    return named and isinstance(conditions, list)


def state_of(csr: Object | None, wanted_uid: str) -> CsrState:
    """Return what this state of the object means for the creator of `wanted_uid`; None = there is no such object."""
    if csr is None:
        return CsrState(CsrOutcome.GONE, line="was deleted before it was answered")
    if uid(csr) != wanted_uid:
        return CsrState(CsrOutcome.GONE, line=f"{name(csr)} was deleted and is another client's now")
    status = csr.get("status") or {}
    conditions = {str(one.get("type")): one for one in status.get("conditions") or () if isinstance(one, dict)}
    if "Denied" in conditions:
        line = f"{name(csr)} was denied{_reason_of(conditions['Denied'])} (delete it to be asked again at once)"
        return CsrState(CsrOutcome.DENIED, line=line)
    if "Failed" in conditions:
        line = (
            f"{name(csr)} failed at its signer{_reason_of(conditions['Failed'])} (delete it to be asked again at once)"
        )
        return CsrState(CsrOutcome.FAILED, line=line)
    certificate = _decoded(status.get("certificate"))
    if "Approved" in conditions and certificate:
        return CsrState(CsrOutcome.ISSUED, certificate=certificate)
    if "Approved" in conditions:
        line = f"{name(csr)} is approved and waits for its signer (does kube-controller-manager run, with a signer?)"
        return CsrState(CsrOutcome.PENDING, line=line)
    return CsrState(
        CsrOutcome.PENDING, line=f"{name(csr)} waits for approval (kubectl certificate approve {name(csr)})"
    )


def _reason_of(condition: Object) -> str:
    text = ": ".join(str(condition[key]) for key in ("reason", "message") if condition.get(key))
    return f": {' '.join(text.split())[:_MAX_SHOWN_CHARACTERS]}" if text else ""


def _decoded(text: object) -> str:
    try:
        return base64.b64decode(str(text or "")).decode()
    except ValueError:  # of base64 and of texts alike
        return ""
