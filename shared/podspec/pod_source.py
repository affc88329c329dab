"""Reads where a pod comes from, in its `kubernetes.io/config.*` annotations: file, URL or API server, since when.
Pure."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from shared.model.objects import Object

SOURCE = "kubernetes.io/config.source"
SEEN = "kubernetes.io/config.seen"
HASH = "kubernetes.io/config.hash"
MIRROR = "kubernetes.io/config.mirror"
STATIC_SOURCES = ("file", "http")  # values of SOURCE


def with_seen(pod: Object, seen: str) -> Object:
    """Return the pod with the moment this agent first saw it (`seen_text`), which never changes its identity."""
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), SEEN: seen}}}


def seen_text(nanoseconds: int, utc_offset_seconds: int) -> str:
    """Return a wall-clock moment as config.seen has it: RFC 3339, always nine digits, the machine's own zone."""
    zone = timezone(timedelta(seconds=utc_offset_seconds)) if utc_offset_seconds else UTC
    seconds, fraction = divmod(nanoseconds, 10**9)
    moment = datetime.fromtimestamp(seconds, zone).isoformat(timespec="seconds")
    day, offset = moment[:19], moment[19:]
    return f"{day}.{fraction:09d}{'Z' if offset == '+00:00' else offset}"


def is_static(pod: Object) -> bool:
    """config.source is set and is not the API."""
    return (_annotations(pod).get(SOURCE) or "api") != "api"


def is_mirror(pod: Object) -> bool:
    """Return whether the pod is a mirror pod, which shows a static pod in the API server."""
    return MIRROR in _annotations(pod)


def is_critical(pod: Object) -> bool:
    """Return whether the pod is static, a mirror pod or of system priority: others may be evicted to admit it."""
    return is_static(pod) or is_mirror(pod) or ((pod.get("spec") or {}).get("priority") or 0) >= 2_000_000_000


def is_node_critical(pod: Object) -> bool:
    """Return whether the pod is critical, and named so by its priority class."""
    return is_critical(pod) and (pod.get("spec") or {}).get("priorityClassName") == "system-node-critical"


def _annotations(pod: Object) -> dict[str, Any]:
    return (pod.get("metadata") or {}).get("annotations") or {}
