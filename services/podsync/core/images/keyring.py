"""Which credentials are tried for an image, and in which order (pods.md 7.4).

Pure: where the entries come from is the adapters' matter. A credential keeps where it is from, for the record of the
pull; its values are in nothing that is printed.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from services.podsync.core.images.docker_config import Credential, DockerConfig
from services.podsync.core.images.image_repository import LEGACY_REGISTRY, is_of_default_registry, location, matches


@dataclass(frozen=True, order=True)
class SecretSource:
    """The Secret that a credential is from."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, order=True)
class AccountSource:
    """The service account for whose token a plugin gave the credential."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class TrackedCredential:
    """A credential and where it is from; None = from the node itself, so that every pod of it may use it."""

    credential: Credential
    source: SecretSource | AccountSource | None = None

    @property
    def hash(self) -> str:
        """SHA-256 of the credential, in hex, as the records of pulls have it."""
        return credential_hash(self.credential)

    @property
    def auth(self) -> dict[str, Any]:
        """The fields of the CRI AuthConfig message by name."""
        both = {"username": self.credential.username, "password": self.credential.password}
        return {name: value for name, value in both.items() if value}


@dataclass(frozen=True)
class SourcedConfig:
    """One docker config and where it is from."""

    config: DockerConfig = field(repr=False)
    source: SecretSource | AccountSource | None = None


def narrowed(entries: SourcedConfig, image: str) -> SourcedConfig:
    """Those that `lookup` may return for the image (a full name without tag); the others need not be kept."""
    return SourcedConfig(
        {w: c for w, c in entries.config.items() if (place := _place(w)) and _may_be_for(place, image)}, entries.source
    )


def lookup(keyring: Iterable[SourcedConfig], image: str) -> tuple[TrackedCredential, ...]:
    """What one keyring has for the image (a full name without tag): more specific places first, then as it was given.
    Credentials for the default registry count where nothing else matches."""
    by_place: dict[str, list[TrackedCredential]] = {}
    for entries in keyring:
        for written, credential in entries.config.items():
            place = _place(written)
            if place and _may_be_for(place, image):
                by_place.setdefault(place, []).append(TrackedCredential(credential, entries.source))
    places = [place for place in sorted(by_place, reverse=True) if matches(place, image)] or list(by_place)
    return tuple(credential for place in places for credential in by_place[place])


def _place(written: str) -> str:
    """Host and path of a key of a docker config; "" for one that is no place."""
    place = location(written)
    return place.host + place.path if place is not None else ""


def _may_be_for(place: str, image: str) -> bool:
    return matches(place, image) or (place == LEGACY_REGISTRY and is_of_default_registry(image))


def credential_hash(credential: Credential) -> str:
    """The hash that the kubelet makes of its JSON form: without what is empty, and with Go's escapes."""
    members = {"username": credential.username, "password": credential.password, "email": credential.email}
    text = orjson.dumps({name: value for name, value in members.items() if value}).decode()
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return hashlib.sha256(text.encode()).hexdigest()
