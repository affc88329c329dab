"""Keeps the resource claims of this node, and finds those that a pod uses; pure."""

from collections.abc import Set

from services.volume.core.resource_claims.claim import Claim, ClaimKey


class KeptClaims:
    """Has each claim by its namespace and name, and the claims of each pod by its UID."""

    def __init__(self) -> None:
        self._claims: dict[ClaimKey, Claim] = {}
        self._keys: dict[str, set[ClaimKey]] = {}  # by the UID of a pod that uses these claims

    def all(self) -> tuple[Claim, ...]:
        """Return the claims in the order of their names."""
        return tuple(claim for _, claim in sorted(self._claims.items()))

    def get(self, key: ClaimKey) -> Claim | None:
        """Return the claim; None = there is none."""
        return self._claims.get(key)

    def pods(self) -> Set[str]:
        """Return the UIDs of the pods that use a claim."""
        return self._keys.keys()

    def of_pod(self, uid: str) -> list[Claim]:
        """Return the claims that the pod uses."""
        return [self._claims[key] for key in sorted(self._keys.get(uid, ()))]

    def put(self, claim: Claim) -> None:
        """Keep the claim, in place of one with the same name."""
        self._forget_uses(claim.key, self._uses(claim.key) - claim.pods.keys())
        for uid in claim.pods:
            self._keys.setdefault(uid, set()).add(claim.key)
        self._claims[claim.key] = claim

    def remove(self, key: ClaimKey) -> None:
        """Forget the claim."""
        self._forget_uses(key, self._uses(key))
        self._claims.pop(key, None)

    def _uses(self, key: ClaimKey) -> Set[str]:
        claim = self._claims.get(key)
        return claim.pods.keys() if claim is not None else set()

    def _forget_uses(self, key: ClaimKey, uids: Set[str]) -> None:
        for uid in uids:
            self._keys[uid].discard(key)
            if not self._keys[uid]:
                del self._keys[uid]
