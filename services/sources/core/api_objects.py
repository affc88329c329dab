"""Reads objects of the API server without relying on their shape; pure."""

from typing import Any

from shared.model.fields import dictionaries, dictionary, text
from shared.model.objects import Object


def read_list(answer: Object) -> tuple[list[Any], str] | None:
    """Return items and version of a list; None when the answer is no list. An empty list has `items`, too."""
    version, items = metadata_text(answer, "resourceVersion"), answer.get("items", ())  # without items it is no list
    if items is None and str(answer.get("kind", "")).endswith("List"):
        items = []  # Go writes an empty list as null
    return (items, version) if version and isinstance(items, list) else None


def metadata_text(obj: Any, key: str) -> str:
    """Return a text in the metadata of a value of any type; "" where it has none."""
    return text(dictionary(dictionary(obj).get("metadata")).get(key))


def without_managed_fields(obj: Object) -> Object:
    """Return the object without metadata.managedFields, which only its writers need and which may be most of it."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def service_addresses(service: Object) -> Object:
    """Return a Service with only its name, its namespace and the fields that variables of containers are made of: the
    cluster IP, and name, number and protocol of each port. An answer may have thousands of Services."""
    spec = dictionary(service.get("spec"))
    ports = dictionaries(spec.get("ports"))
    return {
        "metadata": {key: metadata_text(service, key) for key in ("name", "namespace")},
        "spec": {
            "clusterIP": spec.get("clusterIP"),
            "ports": [{key: port[key] for key in ("name", "port", "protocol") if key in port} for port in ports],
        },
    }


def is_older(version: str, than: str) -> bool:
    """Return whether a resourceVersion is older than another; versions that are no numbers cannot be compared."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
