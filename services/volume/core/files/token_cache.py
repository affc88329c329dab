"""Decides when a service account token is requested again, and what is used when that fails (volumes.md 10.1); pure.

Tokens are kept in memory only. `wall` is in seconds since the epoch, `now` in those of a monotonic clock: both count,
so that a token does not expire unnoticed when the wall clock is set back.
"""

import json
import math
from collections.abc import Container
from dataclasses import dataclass, field
from datetime import UTC, datetime

from msgspec import Struct

MAX_USE_SECONDS = 24 * 3600.0
JITTER_SECONDS = 10  # by which a refresh may be earlier, exclusive
RETRY_SECONDS = 30.0  # after a refresh that failed while the old token is still valid


class TokenError(Exception):
    """There is no valid token; the text is the kubelet's."""


class TokenKey(Struct, frozen=True):
    """Names a token: its service account, audiences and the pod it is bound to. `seconds`: its requested lifetime,
    None = as long as the API server decides."""

    namespace: str
    service_account: str
    audiences: tuple[str, ...]
    seconds: int | None
    pod: str
    pod_uid: str

    def __str__(self) -> str:
        """Return the key as the kubelet prints it."""
        audiences = f"[]string{{{', '.join(map(json.dumps, self.audiences))}}}" if self.audiences else "[]string(nil)"
        pod, uid = json.dumps(self.pod), json.dumps(self.pod_uid)
        reference = f'v1.BoundObjectReference{{Kind:"Pod", APIVersion:"v1", Name:{pod}, UID:{uid}}}'
        account, space = json.dumps(self.service_account), json.dumps(self.namespace)
        return f"{account}/{space}/{audiences}/{self.seconds or 0}/{reference}"

    @property
    def request(self) -> dict[str, object]:
        """Return the TokenRequestSpec for this token."""
        spec: dict[str, object] = {
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": self.pod, "uid": self.pod_uid}
        }
        if self.audiences:
            spec["audiences"] = list(self.audiences)
        if self.seconds is not None:
            spec["expirationSeconds"] = self.seconds
        return spec


@dataclass(frozen=True)
class CachedToken:
    """A token as it was issued. `expires` is None where the answer has no time of a known format."""

    token: str = field(repr=False)
    expires: float | None  # wall
    received: float  # monotonic
    lifetime: int | None  # seconds from issue to `expires`; None = neither answer nor request has it
    expiration: str = ""  # RFC 3339, as the API server returned it

    def needs_refresh(self, *, wall: float, now: float, jitter: float) -> bool:
        """Return whether 80 % of the token's lifetime, or a day, are over, by either clock. `jitter`: the seconds by
        which the refresh is earlier."""
        if self.lifetime is None:
            return False
        if now >= self.refresh_at(jitter):
            return True
        if self.expires is None:
            return False
        return wall > self.expires - self.lifetime + self._used(jitter)

    def refresh_at(self, jitter: float) -> float:
        """Return the monotonic time at which the token is to be refreshed."""
        return math.inf if self.lifetime is None else self.received + self._used(jitter)

    def _used(self, jitter: float) -> float:
        """Return the seconds for which the token is used; the jitter is at most a tenth of the lifetime."""
        lifetime = self.lifetime or 0
        return min(lifetime * 0.8, MAX_USE_SECONDS) - min(jitter, lifetime / 10)

    def expired(self, *, wall: float) -> bool:
        """Return whether the API server refuses the token by now."""
        return self.expires is not None and self.expires < wall


@dataclass
class TokenCache:
    """The tokens of mounted volumes."""

    _tokens: dict[TokenKey, CachedToken] = field(default_factory=dict)

    def fresh(self, key: TokenKey, *, wall: float, now: float, jitter: float) -> CachedToken | None:
        """Return a token that needs no refresh; None = request one."""
        cached = self._tokens.get(key)
        if cached is None or cached.needs_refresh(wall=wall, now=now, jitter=jitter):
            return None
        return cached

    def issued(self, key: TokenKey, token: str, expiration: str, lifetime: int, *, now: float) -> CachedToken:
        """Keep a new token. `expiration` is RFC 3339, `lifetime` the seconds from issue to expiration, 0 = as
        requested."""
        known = lifetime or key.seconds or None
        cached = self._tokens[key] = CachedToken(token, _moment(expiration), now, known, expiration)
        return cached

    def after_failure(self, key: TokenKey, error: str, *, wall: float) -> CachedToken:
        """Return the old token while it is valid. Raises TokenError."""
        cached = self._tokens.get(key)
        if cached is None:
            raise TokenError(f"failed to fetch token: {error}")
        if cached.expired(wall=wall):
            raise TokenError(f"token {key} expired and refresh failed: {error}")
        return cached

    def forget(self, pod_uid: str) -> None:
        """Forget the tokens of a pod whose volumes are torn down."""
        self._tokens = {key: token for key, token in self._tokens.items() if key.pod_uid != pod_uid}

    def keep(self, pod_uids: Container[str]) -> None:
        """Forget the tokens of all pods but these: one may have been issued after its volumes were torn down."""
        self._tokens = {key: token for key, token in self._tokens.items() if key.pod_uid in pod_uids}

    def __len__(self) -> int:
        return len(self._tokens)


def _moment(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
