"""Reading what the API server sent without trusting its shape; pure."""

from typing import Any

from shared.model.objects import Object


def read_list(answer: Object) -> tuple[list[Any], str] | None:
    """Items and version of a list; None when the answer is no list. An empty list has `items`, too."""
    metadata = answer.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    items = answer.get("items", ())  # absent is no list
    if items is None and str(answer.get("kind", "")).endswith("List"):
        items = []  # how Go writes a list it never put anything into
    if not isinstance(version, str) or not version or not isinstance(items, list):
        return None
    return items, version


def metadata_text(obj: Any, key: str) -> str:
    """A text in the metadata of whatever this is; "" when it is not there."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    value = metadata.get(key) if isinstance(metadata, dict) else None
    return value if isinstance(value, str) else ""


def without_managed_fields(obj: Object) -> Object:
    """The object without metadata.managedFields, which only its writers need and which may be most of it."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def service_addresses(service: Object) -> Object:
    """Of a Service only its name, its namespace and what the variables of containers are made of: the cluster IP, and
    name, number and protocol of each port. An answer has thousands of them."""
    spec = service.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    listed = spec.get("ports")
    ports = [port for port in listed if isinstance(port, dict)] if isinstance(listed, list) else []
    return {
        "metadata": {key: metadata_text(service, key) for key in ("name", "namespace")},
        "spec": {
            "clusterIP": spec.get("clusterIP"),
            "ports": [{key: port[key] for key in ("name", "port", "protocol") if key in port} for port in ports],
        },
    }


def is_older(version: str, than: str) -> bool:
    """Whether a resourceVersion is older than another; versions that are no numbers cannot be compared."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
