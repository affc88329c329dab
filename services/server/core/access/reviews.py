"""Questions to the API server about who may do what, its answers, and how long they hold (server.md 2, 3.3).

Sends nothing; times are CLOCK_MONOTONIC seconds, given by the caller.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from services.server.core.access.authentication import User
from services.server.core.access.authorization import Attributes
from services.server.core.listening.shares import Shares
from shared.model.objects import Object

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_CACHED_REVIEWS = 8192
_MAX_CACHED_CHARACTERS = 10_000  # of a question's strings: longer ones are asked each time

_AUTHENTICATED = "system:authenticated"


class ReviewError(Exception):
    """A review that decides nothing; the text names no token."""


class TooManyReviewsError(ReviewError):
    """So many are under way that this one was not begun."""


class PendingReviews:
    """The reviews under way: at most `limit`, and of one address at most `of_address`; addresses share them."""

    def __init__(self, limit: int, of_address: int) -> None:
        self._addresses = Shares(limit, of_address)

    def begin(self, address: str) -> None:
        """Count one more review for this address. Raises TooManyReviewsError where it, or all addresses together, has
        too many."""
        if not self._addresses.take(address):
            total, of_address = self._addresses.total, self._addresses.taken_by(address)
            raise TooManyReviewsError(f"{total} reviews are under way, {of_address} of them for {address}")

    def end(self, address: str) -> None:
        """Count one review less for this address: one that was begun is over."""
        self._addresses.give_back(address)


class ExpiringCache(Generic[K, V]):
    """Answers that hold for a while; at most `entries`, the ones longest unused go first."""

    def __init__(self, entries: int = MAX_CACHED_REVIEWS) -> None:
        self._entries = entries
        self._held: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def get(self, key: K, now: float) -> V | None:
        """Return the answer, None when there is none that still holds."""
        held = self._held.get(key)
        if held is None:
            return None
        value, until = held
        if now >= until:
            del self._held[key]
            return None
        self._held.move_to_end(key)
        return value

    def put(self, key: K, value: V, until: float) -> None:
        """Keep an answer."""
        self._held[key] = (value, until)
        self._held.move_to_end(key)
        while len(self._held) > self._entries:
            self._held.popitem(last=False)

    def clear(self) -> None:
        """Forget all answers."""
        self._held.clear()

    def __len__(self) -> int:
        return len(self._held)


def token_user(status: Object) -> User | None:
    """Return the user a TokenReviewStatus names, None = the token is known to be no good. Raises ReviewError."""
    if status.get("error"):
        raise ReviewError(str(status["error"]))
    if status.get("authenticated") is not True:
        return None
    user = status.get("user")
    if not isinstance(user, dict):
        raise ReviewError("the review names no user")
    groups = _texts(user.get("groups"))
    if _AUTHENTICATED not in groups:
        groups = (*groups, _AUTHENTICATED)
    extra = user.get("extra")
    pairs = extra.items() if isinstance(extra, dict) else ()
    return User(
        str(user.get("username") or ""),
        groups,
        str(user.get("uid") or ""),
        {str(key): _texts(values) for key, values in pairs},
    )


def access_spec(question: Attributes) -> Object:
    """Return the SubjectAccessReviewSpec of a question; what is empty is left out."""
    user = question.user
    resource = {
        "verb": question.verb,
        "version": "v1",
        "resource": "nodes",
        "subresource": question.subresource,
        "name": question.node,
    }
    spec: Object = {
        "resourceAttributes": {key: value for key, value in resource.items() if value},
        "user": user.name,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
        "uid": user.uid,
    }
    return {key: value for key, value in spec.items() if value}


def allowed(status: Object) -> bool:
    """Return whether a SubjectAccessReviewStatus permits the access. Raises ReviewError."""
    if status.get("allowed") is True and status.get("denied") is True:
        raise ReviewError("webhook subject access review returned both allow and deny response")
    return status.get("allowed") is True


def cacheable(question: Attributes) -> bool:
    """Return whether the answer may be kept: a client must not fill the memory with invented names."""
    user = question.user
    texts = [question.verb, question.subresource, question.node, user.name, user.uid, *user.groups]
    texts += [text for key, values in user.extra.items() for text in (key, *values)]
    return sum(map(len, texts)) < _MAX_CACHED_CHARACTERS


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(str(value) for value in values) if isinstance(values, list) else ()
