"""Decides from the records of pulls which pods may use an image that is present (pods.md 7.6).
Pure. A record never has a credential, only its hash and its Secret or service account. The documents are the kubelet's
own, so that each agent can use what the other has written.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from msgspec import Struct, field

from services.podsync.core.images.image_repository import repository
from services.podsync.core.images.keyring import AccountSource, SecretSource, TrackedCredential
from shared.model.frozen_copy import replace

INTENT, PULLED = "ImagePullIntent", "ImagePulledRecord"
_GROUP = "kubelet.config.k8s.io"
_VERSIONS = (f"{_GROUP}/v1beta1", f"{_GROUP}/v1alpha1")
MAX_SECRETS = 100  # of one image; beyond that a Secret is recorded only after a pull


class RecordError(Exception):
    """The document is no record."""


class PullAccess(Struct, frozen=True):
    """Has who may use an image: every pod of the node, or those with one of these credentials."""

    all_pods: bool = False
    secrets: tuple[tuple[SecretSource, str], ...] = ()  # with the hash of the credential
    accounts: tuple[AccountSource, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no pod has access."""
        return not (self.all_pods or self.secrets or self.accounts)


class PulledRecord(Struct, frozen=True):
    """Has an image that was pulled here, by the runtime's reference to it."""

    image_ref: str
    updated: str  # RFC 3339
    # Full name without tag and digest -> who may use it.
    mapping: Mapping[str, PullAccess] = field(default_factory=dict)


class AccessVerdict(Struct, frozen=True):
    """Has whether the pod may use the image without a pull. `learn`: access that the record does not have yet."""

    allowed: bool
    learn: PullAccess | None = None


def file_name(key: str) -> str:
    """Return the name of the file for this image, or reference to one."""
    return f"sha256-{hashlib.sha256(key.encode()).hexdigest()}"


def access_of(credential: TrackedCredential | None) -> PullAccess:
    """Return the access that a pull with this credential proves; without one, that of all pods."""
    match credential.source if credential is not None else None:
        case SecretSource() as secret if credential is not None:
            return PullAccess(secrets=((secret, credential.hash),))
        case AccountSource() as account:
            return PullAccess(accounts=(account,))
        case _:
            return PullAccess(all_pods=True)


def must_verify(policy: str, allowlist: Iterable[str], image: str, *, pulled_here: bool) -> bool:
    """Return whether imagePullCredentialsVerificationPolicy demands credentials for this image, which is present."""
    match policy:
        case "NeverVerifyPreloadedImages":
            return pulled_here
        case "NeverVerifyAllowlistedImages":
            name = repository(image)
            return not any(name.startswith(e[:-1]) if e.endswith("/*") else name == e for e in allowlist)
        case "AlwaysVerify":
            return True
        case _:
            return False


def decide_access(record: PulledRecord | None, image: str, credentials: Iterable[TrackedCredential]) -> AccessVerdict:
    """Decide whether the record permits a pod with these credentials to use the image."""
    access = record.mapping.get(repository(image)) if record is not None else None
    if access is None or access.is_empty:
        return AccessVerdict(allowed=False)
    if access.all_pods:
        return AccessVerdict(allowed=True)
    known = dict(access.secrets)
    hashes = {value for value in known.values() if value}
    credentials = tuple(credentials)
    for credential in credentials:
        secret = credential.source
        if isinstance(secret, SecretSource) and (credential.hash in hashes or secret in known):
            is_new = known.get(secret) != credential.hash and len(known) < MAX_SECRETS
            return AccessVerdict(allowed=True, learn=access_of(credential) if is_new else None)
    return AccessVerdict(allowed=any(credential.source in access.accounts for credential in credentials))


def merged(
    record: PulledRecord | None, image_ref: str, image: str, access: PullAccess | None, now: str
) -> PulledRecord:
    """Return the record with this access added; the same object where nothing is new. `access` None: the image was
    pulled with unknown credentials. `now`: RFC 3339."""
    name = repository(image)
    if record is None:
        mapping = {name: access} if access is not None else {}
        return PulledRecord(image_ref, now, mapping)
    if access is None or access.is_empty:
        return record
    before = record.mapping.get(name, PullAccess())
    after = _united(before, access)
    if name in record.mapping and after == before:
        return record
    return replace(record, updated=now, mapping={**record.mapping, name: after})


def _united(before: PullAccess, new: PullAccess) -> PullAccess:
    if before.all_pods or new.all_pods:
        return PullAccess(all_pods=True)
    return PullAccess(
        secrets=tuple(sorted({**dict(before.secrets), **dict(new.secrets)}.items())),
        accounts=tuple(sorted({*before.accounts, *new.accounts})),
    )


# Documents


def encode_intent(image: str) -> bytes:
    """Return the file of an intent: this image is being pulled."""
    return _encoded(INTENT, {"image": image})


def decode_intent(content: bytes) -> str:
    """Return the image of an intent's file. Raises RecordError."""
    return _text(_document(content, INTENT), "image", required=True)


def encode_record(record: PulledRecord) -> bytes:
    """Return the file that records who may use the image."""
    mapping = {name: _access_document(record.mapping[name]) for name in sorted(record.mapping)}
    times = {"lastUpdatedTime": record.updated, "imageRef": record.image_ref}
    return _encoded(PULLED, {**times, **({"credentialMapping": mapping} if mapping else {})})


def decode_record(content: bytes) -> PulledRecord:
    """Return the record of a file. Raises RecordError."""
    document = _document(content, PULLED)
    mapping = {name: _access(_members(entry)) for name, entry in _members(document.get("credentialMapping")).items()}
    return PulledRecord(_text(document, "imageRef", required=True), _text(document, "lastUpdatedTime"), mapping)


def _encoded(kind: str, members: dict[str, Any]) -> bytes:
    return orjson.dumps({"kind": kind, "apiVersion": _VERSIONS[0], **members}) + b"\n"


def _access_document(access: PullAccess) -> dict[str, Any]:
    secrets = [
        {"uid": secret.uid, "namespace": secret.namespace, "name": secret.name, "credentialHash": value}
        for secret, value in access.secrets
    ]
    accounts = [{"uid": source.uid, "namespace": source.namespace, "name": source.name} for source in access.accounts]
    return {
        **({"kubernetesSecrets": secrets} if secrets else {}),
        **({"kubernetesServiceAccounts": accounts} if accounts else {}),
        **({"nodePodsAccessible": True} if access.all_pods else {}),
    }


def _access(entry: Mapping[str, Any]) -> PullAccess:
    secrets = _list(entry.get("kubernetesSecrets"))
    accounts = _list(entry.get("kubernetesServiceAccounts"))
    return PullAccess(
        all_pods=entry.get("nodePodsAccessible") is True,
        secrets=tuple((SecretSource(*_coordinates(item)), _text(item, "credentialHash")) for item in secrets),
        accounts=tuple(AccountSource(*_coordinates(item)) for item in accounts),
    )


def _coordinates(item: Mapping[str, Any]) -> tuple[str, str, str]:
    return _text(item, "namespace"), _text(item, "name"), _text(item, "uid")


def _document(content: bytes, kind: str) -> Mapping[str, Any]:
    try:
        document = _members(orjson.loads(content))
    except orjson.JSONDecodeError as error:
        raise RecordError(f"not valid JSON: {error.msg}") from None
    if document.get("kind") != kind or document.get("apiVersion") not in _VERSIONS:
        raise RecordError(f"no {kind} of {_VERSIONS[0]}")
    return document


def _members(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RecordError("an object is something else")
    return value


def _list(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list | None):
        raise RecordError("a list is something else")
    return [_members(item) for item in value or ()]


def _text(document: Mapping[str, Any], name: str, *, required: bool = False) -> str:
    value = document.get(name) or ""
    if not isinstance(value, str) or (required and not value):
        raise RecordError(f"{name} is no text")
    return value
