"""Encodes the record of when this node first saw each API pod, and of the version of these pods; pure.

The annotation config.seen goes into sandboxes, so it must be the same after a restart of sources. The API does not have
this time (a pod may be created long before it is bound), so it is saved before the pod is published: one record for
all pods, because it is small and changes only with what is to run.

The version is the resourceVersion up to which the pods were read when something of them was published last. After a
restart they are listed not older than it: the cache of an API server that is behind could lack a pod that runs here, or
still have one that is gone.
"""

from collections.abc import Mapping
from typing import Any

VERSION = 1
KEY = "first-seen"


def encode(seen: Mapping[str, str], resource_version: str = "") -> dict[str, Any]:
    """Return the record of UID -> annotation."""
    return {"version": VERSION, "pods": dict(seen), "resource_version": resource_version}


def resource_version(record: Mapping[str, Any] | None) -> str:
    """Return the version up to which the pods were read; "" = the record has none."""
    found = (record or {}).get("resource_version")
    return found if isinstance(found, str) and found.isdecimal() else ""


def decode(record: Mapping[str, Any] | None) -> dict[str, str]:
    """Return UID -> annotation from a record, as far as it is understood if a newer version wrote it; empty for
    anything else."""
    match record:
        case {"version": int(version), "pods": dict(pods)} if version >= VERSION:
            return {uid: seen for uid, seen in pods.items() if isinstance(uid, str) and isinstance(seen, str)}
    return {}


def is_newer(record: Mapping[str, Any] | None) -> bool:
    """Return whether a newer version wrote the record in a form that is not understood, so that it must be kept."""
    match record:
        case {"version": int(version), "pods": dict()} if version > VERSION:
            return False
        case {"version": int(version)}:
            return version > VERSION
    return False
