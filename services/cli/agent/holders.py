"""Names the containers that were given something alone, as the items of `pods.admitted` have them."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct


class Holder(Struct, frozen=True, kw_only=True):
    """Has a container that was given something alone."""

    namespace: str
    pod: str
    uid: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.container}"


def sorted_pods(admitted: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the items of `pods.admitted` by namespace and name."""
    return sorted(admitted, key=lambda pod: (pod["namespace"], pod["name"], pod["uid"]))


def holder(pod: Mapping[str, Any], container: str) -> Holder:
    """Return a container by its name as a holder. `pod` is the item of `pods.admitted` of its pod."""
    return Holder(namespace=pod["namespace"], pod=pod["name"], uid=pod["uid"], container=container)
