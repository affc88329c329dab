"""Encodes the records of a manifest file and of the URL, and decides which records count after a restart; pure.

A record that cannot be understood does not count, because it is only needed while its file is broken, and for the
first-seen time. A record of a newer version counts if it has the fields that this version reads.
"""

from collections.abc import Iterable
from typing import Any

from shared.model.objects import Object

VERSION = 1


def encode(pod: Object, origin: str) -> dict[str, Any]:
    """Return the record of the pod last published from a file, with its first-seen annotation. `origin`: the path from
    which its UID is made."""
    return {"version": VERSION, "pod": pod, "origin": origin}


def decode(record: dict[str, Any], path: str, *, node_name: str) -> tuple[Object, str] | None:
    """Return pod and origin from the record of the file at `path`; None for anything else, or for a node of another
    name."""
    match record:
        case {
            "version": int(version),
            "pod": {"metadata": {"uid": str(uid), "name": str(), "namespace": str()}, "spec": {"nodeName": str(node)}},
        } if version >= VERSION and uid and node == node_name:
            origin = record.get("origin")
            return record["pod"], origin if isinstance(origin, str) else path
    return None


def encode_list(pods: Iterable[Object], origin: str) -> dict[str, Any]:
    """Return the record of all pods last published from the URL, with their first-seen annotations. `origin`:
    identifies the URL."""
    return {"version": VERSION, "pods": list(pods), "origin": origin}


def decode_list(record: dict[str, Any], origin: str, *, node_name: str) -> tuple[Object, ...] | None:
    """Return the pods from the record of the URL; None for anything else, another URL, or a node of another name."""
    match record:
        case {"version": int(version), "pods": list(pods), "origin": str(found)} if found == origin:
            decoded = [decode({"version": version, "pod": pod}, "", node_name=node_name) for pod in pods]
            known = tuple(entry[0] for entry in decoded if entry is not None)
            return known if len(known) == len(pods) else None
    return None


def is_newer(record: dict[str, Any]) -> bool:
    """Return whether a newer version wrote the record, which is then kept even if it is not understood."""
    version = record.get("version")
    return isinstance(version, int) and version > VERSION
