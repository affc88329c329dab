"""The content of the records of a manifest file and of the URL, and which records count after a restart; pure.

A record that cannot be understood does not count: all it does is bridge the time in which its file is broken, and keep
the first-seen time. One of a newer version counts as far as it has what this version reads.
"""

from collections.abc import Iterable
from typing import Any

from shared.model.objects import Object

VERSION = 1


def encode(pod: Object, origin: str) -> dict[str, Any]:
    """The record of the pod last published from a file, with its first-seen annotation. `origin`: the path that its UID
    is made from."""
    return {"version": VERSION, "pod": pod, "origin": origin}


def decode(record: dict[str, Any], path: str, *, node_name: str) -> tuple[Object, str] | None:
    """The inverse of `encode`, of the record of the file at `path`; None for something else, or for a node of another
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
    """The record of all pods last published from the URL, with their first-seen annotations. `origin`: stands for the
    URL."""
    return {"version": VERSION, "pods": list(pods), "origin": origin}


def decode_list(record: dict[str, Any], origin: str, *, node_name: str) -> tuple[Object, ...] | None:
    """The inverse of `encode_list`; None for something else, another URL, or a node of another name."""
    match record:
        case {"version": int(version), "pods": list(pods), "origin": str(found)} if found == origin:
            decoded = [decode({"version": version, "pod": pod}, "", node_name=node_name) for pod in pods]
            known = tuple(one[0] for one in decoded if one is not None)
            return known if len(known) == len(pods) else None
    return None


def is_newer(record: dict[str, Any]) -> bool:
    """Whether a newer version wrote it: it stays, also where it is not understood."""
    version = record.get("version")
    return isinstance(version, int) and version > VERSION
