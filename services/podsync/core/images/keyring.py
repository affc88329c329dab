"""Decides which credentials are tried for an image, and in which order (pods.md 7.4).
Pure: the adapters read the entries. A credential has its source, for the record of the pull; no repr has its values.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson
from msgspec import Struct

from services.podsync.core.images.docker_config import Credential, DockerConfig
from services.podsync.core.images.image_repository import LEGACY_REGISTRY, is_of_default_registry, location, matches


class SecretSource(Struct, frozen=True, order=True):
    """Names the Secret that a credential is from."""

    namespace: str
    name: str
    uid: str


class AccountSource(Struct, frozen=True, order=True):
    """Names the service account with whose token a plugin got the credential."""

    namespace: str
    name: str
    uid: str


class TrackedCredential(Struct, frozen=True):
    """Has a credential and its source; None = the node itself, so that every pod of it may use the credential."""

    credential: Credential
    source: SecretSource | AccountSource | None = None

    @property
    def hash(self) -> str:
        """The SHA-256 of the credential in hex, as the records of pulls have it."""
        return credential_hash(self.credential)

    @property
    def auth(self) -> dict[str, Any]:
        """The fields of the CRI AuthConfig message."""
        both = {"username": self.credential.username, "password": self.credential.password}
        return {name: value for name, value in both.items() if value}


@dataclass(frozen=True)
class SourcedConfig:
    """Has a docker config and its source."""

    config: DockerConfig = field(repr=False)
    source: SecretSource | AccountSource | None = None


def narrowed(entries: SourcedConfig, image: str) -> SourcedConfig:
    """Return only the entries that `lookup` may return for the image (a full name without tag)."""
    config = {key: credential for key, credential in entries.config.items() if _may_be_for(_place(key), image)}
    return SourcedConfig(config, entries.source)


def lookup(keyring: Iterable[SourcedConfig], image: str) -> tuple[TrackedCredential, ...]:
    """Return the credentials of one keyring for the image (a full name without tag): those of more specific places
    first, else in the order of the keyring. Credentials for the default registry count where nothing else matches."""
    by_place: dict[str, list[TrackedCredential]] = {}
    for entries in keyring:
        for key, credential in entries.config.items():
            place = _place(key)
            if _may_be_for(place, image):
                by_place.setdefault(place, []).append(TrackedCredential(credential, entries.source))
    places = [place for place in sorted(by_place, reverse=True) if matches(place, image)] or list(by_place)
    return tuple(credential for place in places for credential in by_place[place])


def _place(key: str) -> str:
    """Return host and path of a key of a docker config; "" for one that is no place."""
    place = location(key)
    return place.host + place.path if place is not None else ""


def _may_be_for(place: str, image: str) -> bool:
    if not place:
        return False
    return matches(place, image) or (place == LEGACY_REGISTRY and is_of_default_registry(image))


def credential_hash(credential: Credential) -> str:
    """Return the kubelet's hash of the credential's JSON form, without empty members and with Go's escapes."""
    members = {"username": credential.username, "password": credential.password, "email": credential.email}
    text = orjson.dumps({name: value for name, value in members.items() if value}).decode()
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return hashlib.sha256(text.encode()).hexdigest()
