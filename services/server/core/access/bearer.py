"""Finds the token of a request in the Authorization header or a WebSocket sub-protocol (server.md 2). Verifies none."""

import base64
import binascii
from collections.abc import Iterable

_PROTOCOL = "base64url.bearer.authorization.k8s.io."


MAX_TOKEN_BYTES = 16 << 10  # of a token; the tokens of an API server have one or two KiB


class BearerError(Exception):
    """A token was offered in a form that is refused; the text names no token."""


def header_token(authorization: str) -> str:
    """Return the token of an Authorization header, "" when it carries none. Raises BearerError."""
    scheme, _, rest = authorization.strip().partition(" ")
    return _checked(rest.split(" ", 1)[0]) if scheme.lower() == "bearer" else ""


def protocol_token(protocols: Iterable[str]) -> str:
    """Return the token among the sub-protocols a WebSocket request offers, "" when there is none. Raises
    BearerError."""
    offered = list(protocols)
    tokens = [protocol[len(_PROTOCOL) :] for protocol in offered if protocol.startswith(_PROTOCOL)]
    if not tokens:
        return ""
    if len(tokens) > 1:
        raise BearerError("multiple base64.bearer.authorization tokens specified")
    if len(offered) == 1:
        raise BearerError("missing additional subprotocol")
    encoded = tokens[0]
    try:
        if "=" in encoded:
            raise BearerError("invalid base64.bearer.authorization token encoding")
        padded = encoded + "=" * (-len(encoded) % 4)
        return _checked(base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8"))
    except (binascii.Error, UnicodeDecodeError) as error:
        raise BearerError("invalid base64.bearer.authorization token encoding") from error


def _checked(token: str) -> str:
    if len(token) > MAX_TOKEN_BYTES:
        raise BearerError(f"a token of more than {MAX_TOKEN_BYTES} bytes")
    if not (token.isascii() and token.isprintable()):
        raise BearerError("a token with characters that are not printable ASCII")
    return token


def without_token(protocols: str) -> str:
    """Return a Sec-WebSocket-Protocol header without the token in it; unchanged where there is none."""
    kept = [part for part in protocols.split(",") if not part.strip().startswith(_PROTOCOL)]
    return protocols if len(kept) == len(protocols.split(",")) else ",".join(kept).strip()
