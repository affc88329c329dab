"""Shares places among several claimants, so that a few of them cannot take all. Pure."""

from collections import Counter


class Shares:
    """The places that are taken: at most `limit`, and of one claimant at most `of_one`. A claimant takes a place only
    while it has fewer than are free, so that it leaves about as many to others."""

    def __init__(self, limit: int, of_one: int | None = None) -> None:
        self._limit, self._of_one = limit, limit if of_one is None else of_one
        self._taken: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """How many places are taken."""
        return self._taken.total()

    def taken_by(self, claimant: str) -> int:
        """Return how many places the claimant has."""
        return self._taken[claimant]

    def take(self, claimant: str) -> bool:
        """Take a place; return False where the claimant may not."""
        if self._taken[claimant] >= min(self._of_one, self._limit - self.total):
            return False
        self._taken[claimant] += 1
        return True

    def give_back(self, claimant: str) -> None:
        """Free a place that was taken."""
        self._taken[claimant] -= 1
        if not self._taken[claimant]:
            del self._taken[claimant]
