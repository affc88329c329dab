"""Reads the pods of a document from the static pod URL, which is one Pod or one PodList (pods.md 1.4). Pure."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from services.sources.core.yaml_document import read_document
from shared.model.objects import Object
from shared.podspec.static_pod import InvalidPod

MAX_PODS = 1_000  # of one document


def pods_of(content: bytes, make_pod: Callable[[Any], Object]) -> tuple[Object, ...]:
    """Return the pods in the document's order; none for zero bytes. Raises UnreadableManifestError, and InvalidPod if
    one of the pods is invalid."""
    if not content:
        return ()
    document = read_document(content)
    if not isinstance(document, dict) or (document.get("kind"), document.get("apiVersion")) != ("PodList", "v1"):
        return (make_pod(document),)
    items = [] if document.get("items") is None else document["items"]
    if not isinstance(items, list):
        raise InvalidPod("invalid pod list: items is not a list")
    if len(items) > MAX_PODS:
        raise InvalidPod(f"invalid pod list: it has {len(items)} pods, {MAX_PODS} are the most")
    return tuple(_item(number, item, make_pod) for number, item in enumerate(items))


def _item(number: int, item: Any, make_pod: Callable[[Any], Object]) -> Object:
    try:
        return make_pod({"apiVersion": "v1", "kind": "Pod", **item} if isinstance(item, dict) else item)
    except InvalidPod as error:
        raise InvalidPod(f"items[{number}]: {error}") from error


def shown_url(url: str) -> str:
    """Return the URL for logs, without user, password and query, which may be secrets; "" for an invalid URL."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return ""
    return f"{parts.scheme}://{host}{parts.path}" if parts.scheme and host else ""
