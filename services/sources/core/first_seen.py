"""The record of when this node first saw each API pod; pure.

The annotation config.seen goes into sandboxes, so it must be the same after a restart of sources. The API does not have
this time (a pod may be created long before it is bound), so it is saved before the pod is published: one record for
all pods, because it is small and changes only when pods are added or removed.
"""

from collections.abc import Mapping
from typing import Any

VERSION = 1
KEY = "first-seen"


def encode(seen: Mapping[str, str]) -> dict[str, Any]:
    """The record of UID -> annotation."""
    return {"version": VERSION, "pods": dict(seen)}


def decode(record: Mapping[str, Any] | None) -> dict[str, str]:
    """The inverse of `encode` (UID -> annotation), of a newer version's record as far as it is understood; empty for
    something else."""
    match record:
        case {"version": int(version), "pods": dict(pods)} if version >= VERSION:
            return {uid: seen for uid, seen in pods.items() if isinstance(uid, str) and isinstance(seen, str)}
    return {}


def is_newer(record: Mapping[str, Any] | None) -> bool:
    """Whether a newer version wrote it in a form that is not understood: it is not to be replaced."""
    match record:
        case {"version": int(version), "pods": dict()} if version > VERSION:
            return False
        case {"version": int(version)}:
            return version > VERSION
    return False
