"""Which stream a URL stands for: each URL is for one connection within a minute. Pure: time is an argument."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_TOKENS = 1000
TOKEN_SECONDS = 60.0


class StreamTokens(Generic[T]):
    """Requests by token, oldest first. `new_token` returns a random one."""

    def __init__(self, new_token: Callable[[], str]) -> None:
        self._new_token = new_token
        self._requests: dict[str, tuple[float, T]] = {}

    def add(self, request: T, now: float) -> str | None:
        """Return the token of a request; None = too many are waiting."""
        self._forget(now)
        if len(self._requests) >= MAX_TOKENS:
            return None
        token = self._new_token()
        self._requests[token] = (now, request)
        return token

    def take(self, token: str, now: float) -> T | None:
        """Return the request of a token, once."""
        self._forget(now)
        entry = self._requests.pop(token, None)
        return entry[1] if entry is not None else None

    def _forget(self, now: float) -> None:
        for token in [token for token, (made, _) in self._requests.items() if now - made > TOKEN_SECONDS]:
            del self._requests[token]
