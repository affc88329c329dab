"""Parses registry credentials as docker writes them: `config.json` and the older `.dockercfg` (pods.md 7.4).
An error contains no value of the text.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

MAX_REGISTRIES = 1_000  # of one document


class DockerConfigError(Exception):
    """The text is no docker config; the message names the error, never a value of the text."""


@dataclass(frozen=True)
class Credential:
    """Has a user of a registry. No field is in the repr."""

    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    email: str = field(default="", repr=False)


DockerConfig = Mapping[str, Credential]  # place, as in the document -> credential


def read_config_json(content: bytes) -> DockerConfig:
    """Parse `~/.docker/config.json`, or a Secret's `.dockerconfigjson`. Raises DockerConfigError."""
    document = _object(_decoded(content), "")
    headers = _member(document, "HttpHeaders")
    for value in _object(headers, "HttpHeaders").values():
        _text(value, "a value of HttpHeaders")
    return _entries(_member(document, "auths"), "auths")


def read_dockercfg(content: bytes) -> DockerConfig:
    """Parse `~/.dockercfg`, or a Secret's `.dockercfg`, which has only the entries. Raises DockerConfigError."""
    return _entries(_decoded(content), "")


def _decoded(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        # Not chained, because the JSON error contains the whole text.
        raise DockerConfigError(f"not valid JSON at line {error.lineno} column {error.colno}") from None


def _entries(value: Any, where: str) -> DockerConfig:
    entries = {}
    members = _object(value, where)
    if len(members) > MAX_REGISTRIES:
        raise DockerConfigError(
            f"{where or 'the document'} has {len(members)} registries, at most {MAX_REGISTRIES} are read"
        )
    for number, (place, entry) in enumerate(members.items(), start=1):
        shown = f"entry {number}" + (f" of {where}" if where else "")
        entries[place] = _credential(_object(entry, shown), shown)
    return entries


def _credential(entry: Mapping[str, Any], shown: str) -> Credential:
    username, password, email, auth = (
        _text(_member(entry, name), f"{name} of {shown}") for name in ("username", "password", "email", "auth")
    )
    if auth:
        username, password = _user_and_password(auth, shown)
    return Credential(username, password, email)


def _user_and_password(auth: str, shown: str) -> tuple[str, str]:
    """Return both parts of the base64 text, which may lack its padding."""
    packed = auth.replace("\r", "").replace("\n", "")
    if not packed.endswith("="):
        packed += "=" * (-len(packed) % 4)
    try:
        text = base64.b64decode(packed, validate=True).decode(errors="replace")
    except (binascii.Error, ValueError):
        raise DockerConfigError(f"auth of {shown} is not base64") from None
    username, colon, password = text.partition(":")
    if not colon:
        raise DockerConfigError(f"auth of {shown} must be base64 of username:password")
    return username, password


def _member(document: Mapping[str, Any], name: str) -> Any:
    """Return the member with this name in upper or lower case; the last one counts."""
    values = [value for key, value in document.items() if key.lower() == name.lower()]
    return values[-1] if values else None


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DockerConfigError(f"{where or 'the document'} must be an object")
    return value


def _text(value: Any, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DockerConfigError(f"{where} must be a string")
    return value
