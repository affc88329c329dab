"""Writes the request to a credential plugin and reads its answer (pods.md 7.5). Runs no plugin.
No error here contains a token or password.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from services.podsync.core.images.docker_config import Credential, DockerConfig
from services.podsync.core.images.image_repository import matches
from services.podsync.core.images.keyring import AccountSource
from shared.config.durations import parse_duration
from shared.config.effective import CredentialProvider

CACHE_KEYS = ("Image", "Registry", "Global")


class PluginAnswerError(Exception):
    """The plugin's answer cannot be used; the text has the reason, and nothing of the answer."""


@dataclass(frozen=True)
class AccountIdentity:
    """Has the service account for which a plugin runs. `annotations`: those that the plugin gets."""

    account: AccountSource
    annotations: Mapping[str, str] = field(default_factory=dict)
    token: str = field(default="", repr=False)

    def scope(self, *, with_token: bool) -> str:
        """Return a key that separates the answers for this identity from those for others."""
        parts: list[Any] = [
            self.account.namespace,
            self.account.name,
            self.account.uid,
            sorted(self.annotations.items()),
        ]
        if with_token:
            parts.append(hashlib.sha256(self.token.encode()).hexdigest())
        return hashlib.sha256(orjson.dumps(parts)).hexdigest()


@dataclass(frozen=True)
class PluginAnswer:
    """Has a CredentialProviderResponse. `seconds`: how long it may be kept, None = the provider's default."""

    cache_key: str
    config: DockerConfig = field(repr=False)
    seconds: float | None = None


def is_for(provider: CredentialProvider, image: str) -> bool:
    """Return whether the provider is for this image (a full name without tag)."""
    return any(matches(pattern, image) for pattern in provider.match_images)


def wanted_annotations(provider: CredentialProvider, annotations: Mapping[str, str]) -> dict[str, str] | None:
    """Return those of the service account's annotations that the plugin gets; None where a required one is missing."""
    if any(key not in annotations for key in provider.required_annotations):
        return None
    wanted = (*provider.required_annotations, *provider.optional_annotations)
    return {key: annotations[key] for key in sorted(wanted) if key in annotations}


def request_document(provider: CredentialProvider, image: str, identity: AccountIdentity | None) -> bytes:
    """Return what the plugin reads from its standard input."""
    request: dict[str, Any] = {"kind": "CredentialProviderRequest", "apiVersion": provider.api_version, "image": image}
    if identity is not None:
        request["serviceAccountToken"] = identity.token
        if identity.annotations:
            request["serviceAccountAnnotations"] = dict(identity.annotations)
    return orjson.dumps(request) + b"\n"


def read_answer(provider: CredentialProvider, content: bytes, identity: AccountIdentity | None) -> PluginAnswer:
    """Parse what the plugin wrote to its standard output. Raises PluginAnswerError."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        raise PluginAnswerError("it is not valid JSON") from None
    if not isinstance(document, dict):
        raise PluginAnswerError("it is no object")
    if document.get("apiVersion") != provider.api_version:
        raise PluginAnswerError(f"its apiVersion is not {provider.api_version}")
    if document.get("kind") != "CredentialProviderResponse":
        raise PluginAnswerError("its kind is not CredentialProviderResponse")
    config = _config(document.get("auth"))
    token = identity.token if identity is not None and provider.token_cache_type != "Token" else ""
    if token and any(credential.password == token for credential in config.values()):
        raise PluginAnswerError("it gives the service account's token as a password, which cacheType Token is for")
    if document.get("cacheKeyType") not in CACHE_KEYS:
        raise PluginAnswerError(f"its cacheKeyType is none of {', '.join(CACHE_KEYS)}")
    return PluginAnswer(str(document["cacheKeyType"]), config, _seconds(document.get("cacheDuration")))


def _config(auth: Any) -> DockerConfig:
    if not isinstance(auth, dict | None):
        raise PluginAnswerError("its auth is no object")
    config = {}
    for place, entry in (auth or {}).items():
        entry = {} if entry is None else entry
        if not isinstance(entry, dict):
            raise PluginAnswerError("an entry of its auth is no object")
        username, password = entry.get("username") or "", entry.get("password") or ""
        if not isinstance(username, str) or not isinstance(password, str):
            raise PluginAnswerError("a username or password of it is no string")
        config[place] = Credential(username, password)
    return config


def _seconds(duration: Any) -> float | None:
    if duration is None:
        return None
    try:
        return parse_duration(duration)
    except (ValueError, TypeError, AttributeError):
        raise PluginAnswerError("its cacheDuration is no duration") from None
