"""Reads how long an issued service account token is valid, which may be shorter than was requested. Pure."""

import base64
import binascii
from typing import Any

import orjson

from shared.model.fields import dictionary
from shared.model.objects import Object
from shared.time.timestamps import parse_rfc3339

_MAX_TOKEN_CHARACTERS = 16 * 2**10  # of a token whose claims are read
_MAX_LIFETIME_SECONDS = 100 * 365 * 86400


def token_lifetime(answer: Object) -> int:
    """Return the seconds from the issue of the token in the answer to a TokenRequest to its expirationTimestamp; 0 =
    unknown. The time of issue is the token's own `iat`; where it has none, the answer's expirationSeconds count."""
    status, spec = dictionary(answer.get("status")), dictionary(answer.get("spec"))
    expires, issued = parse_rfc3339(str(status.get("expirationTimestamp"))), _issued_at(status.get("token"))
    lifetime: Any = spec.get("expirationSeconds")
    if expires is not None and issued is not None:
        lifetime = int(expires - issued)
    known = isinstance(lifetime, int) and not isinstance(lifetime, bool)
    return int(lifetime) if known and 0 < lifetime <= _MAX_LIFETIME_SECONDS else 0


def _issued_at(token: object) -> float | None:
    """Return the `iat` of a JWT, in seconds since the epoch; None where it has none."""
    if not isinstance(token, str) or len(token) > _MAX_TOKEN_CHARACTERS or token.count(".") != 2:
        return None
    payload = token.split(".")[1]
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (binascii.Error, ValueError):
        return None
    issued = claims.get("iat") if isinstance(claims, dict) else None
    return float(issued) if isinstance(issued, int | float) and not isinstance(issued, bool) else None
