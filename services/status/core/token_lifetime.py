"""How long an issued service account token is good for: the API server may make it shorter than was asked for. Pure."""

import base64
import binascii
from typing import Any

import orjson

from shared.model.objects import Object
from shared.time.timestamps import parse_rfc3339

_LONGEST = 16 * 2**10  # characters of a token that is looked into
_MOST = 100 * 365 * 86400  # seconds


def token_lifetime(answer: Object) -> int:
    """Seconds from the issue of the token in a TokenRequest that was answered to its expirationTimestamp; 0 = unknown.

    The issue is the token's own `iat`; where it has none, the answer's expirationSeconds count.
    """
    status, spec = _map(answer.get("status")), _map(answer.get("spec"))
    expires, issued = parse_rfc3339(str(status.get("expirationTimestamp"))), _issued_at(status.get("token"))
    lifetime: Any = spec.get("expirationSeconds")
    if expires is not None and issued is not None:
        lifetime = int(expires - issued)
    known = isinstance(lifetime, int) and not isinstance(lifetime, bool)
    return int(lifetime) if known and 0 < lifetime <= _MOST else 0


def _issued_at(token: object) -> float | None:
    """The `iat` of a JWT, in seconds since the epoch."""
    if not isinstance(token, str) or len(token) > _LONGEST or token.count(".") != 2:
        return None
    payload = token.split(".")[1]
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (binascii.Error, ValueError):
        return None
    issued = claims.get("iat") if isinstance(claims, dict) else None
    return float(issued) if isinstance(issued, int | float) and not isinstance(issued, bool) else None


def _map(value: object) -> Object:
    return value if isinstance(value, dict) else {}
