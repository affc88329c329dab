"""Checks what is applied to a node without a cluster, a Pod, ConfigMap or Secret, and makes the file of it. Pure.

The file's name follows from kind, namespace and name, which are checked first, so that it contains no path separator.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from msgspec import Struct

from shared.agent.apply_api import MAX_APPLIED_BYTES
from shared.model.objects import Object
from shared.podspec.names import dns_label, dns_subdomain
from shared.podspec.static_pod import InvalidPod

MAX_DATA_BYTES = 1 << 20  # of the data of a ConfigMap or Secret, as in the API
MAX_FILES = 500
MAX_BYTES = 64 << 20  # of all files
MAX_FILE_NAME_BYTES = 255 - len("..4194304.tmp")  # an atomic write has a temporary name

KINDS = ("Pod", "ConfigMap", "Secret")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_FORBIDDEN_KEYS = (".", "..")


class RefusedError(Exception):
    """The object is refused. `str()` is one line; `reason` and `code` are those of a Kubernetes Status."""

    def __init__(self, message: str, reason: str = "Invalid", code: int = 422) -> None:
        super().__init__(message)
        self.reason, self.code = reason, code


class Identity(Struct, frozen=True, order=True):
    """Names an object; a pod has the name in its manifest."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def file_name(self) -> str:
        """Return the name of the object's file. Kind and namespace contain no dot, so it can be split again."""
        return f"{self.kind.lower()}.{self.namespace}.{self.name}"


def identity(kind: str, namespace: str, name: str) -> Identity:
    """Return the identity with these parts of a URL or document, after checking them. Raises RefusedError."""
    by_file = {known.lower(): known for known in KINDS}
    if kind.lower() not in by_file:
        raise RefusedError(f"kind {kind[:64]!r} is not one of {', '.join(KINDS)}", "BadRequest", 400)
    errors = [f"metadata.namespace: {error}" for error in dns_label(namespace)]
    errors += [f"metadata.name: {error}" for error in dns_subdomain(name)]
    found = Identity(by_file[kind.lower()], namespace, name)
    if not errors and len(found.file_name) > MAX_FILE_NAME_BYTES:
        errors = [
            f"metadata.name: kind, namespace and name have more than {MAX_FILE_NAME_BYTES - 2} characters together"
        ]
    if errors:
        raise RefusedError("; ".join(errors))
    return found


def identity_of(kind: str, metadata: Mapping[str, Any]) -> Identity:
    """Return the identity of a document of this kind with these metadata, after checking them. Raises RefusedError."""
    name, namespace = metadata.get("name"), metadata.get("namespace") or "default"
    if not isinstance(name, str):
        raise RefusedError("metadata.name: Required value")
    if not isinstance(namespace, str):
        raise RefusedError("metadata.namespace: must be a string")
    return identity(kind, namespace, name)


def parse_file_name(name: str) -> Identity | None:
    """Return the identity whose `file_name` this is; None = there is none."""
    parts = name.split(".", 2)
    try:
        found = identity(*parts) if len(parts) == 3 else None
    except RefusedError:
        return None
    return found if found is not None and found.file_name == name else None


def check_applied(document: Any, check_pod: Callable[[Object], object]) -> tuple[Identity, bytes]:
    """Return the identity of a document and the content of its file. `check_pod` raises InvalidPod. Raises
    RefusedError."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(document, dict) or document.get("apiVersion") != "v1" or kind not in KINDS:
        raise RefusedError(f"apiVersion must be v1, and kind one of {', '.join(KINDS)}", "BadRequest", 400)
    metadata = document.get("metadata")
    found = identity_of(str(kind), metadata if isinstance(metadata, dict) else {})
    if kind == "Pod":
        try:
            check_pod(document)
        except InvalidPod as error:
            raise RefusedError(str(error).replace("\n", "; ")) from error
        try:
            return found, orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
        except TypeError as error:  # such as a number of more than 64 bits
            raise RefusedError(f"invalid pod: {error}") from error
    return found, orjson.dumps(stored_object(document), option=orjson.OPT_SORT_KEYS)


def stored_object(document: Mapping[str, Any]) -> Object:
    """Return a ConfigMap or Secret with the fields that the node uses: the data, in base64 for a Secret. Raises
    RefusedError."""
    kind, metadata = document["kind"], document["metadata"]
    data = _texts(document, "data")
    texts = _texts(document, "stringData") if kind == "Secret" else {}
    binary = _texts(document, "binaryData") if kind == "ConfigMap" else {}
    if kind == "Secret":
        data = _without_line_breaks(data)
    else:
        binary = _without_line_breaks(binary)
    for key in (*data, *texts, *binary):
        if not _KEY.fullmatch(key) or key in _FORBIDDEN_KEYS:
            raise RefusedError(f"data[{key[:64]!r}]: a key has alphanumeric characters, '-', '_' or '.', 253 at most")
    if both := data.keys() & binary.keys():
        raise RefusedError(f"binaryData[{min(both)!r}]: duplicate of key present in data")
    encoded = data if kind == "Secret" else binary
    size = sum(_decoded_size(key, value) for key, value in encoded.items())
    size += sum(len(value.encode("utf-8", "surrogatepass")) for value in (texts if kind == "Secret" else data).values())
    if size > MAX_DATA_BYTES:
        raise RefusedError(f"data: Too long: may not be more than {MAX_DATA_BYTES} bytes")
    stored = {"apiVersion": "v1", "kind": kind, "metadata": {"name": metadata["name"]}}
    stored["metadata"]["namespace"] = metadata.get("namespace") or "default"
    if kind == "Secret":
        stored["type"] = str(document.get("type") or "Opaque")
        stored["data"] = data | {key: base64.b64encode(value.encode()).decode() for key, value in texts.items()}
    else:
        stored |= {"data": data, "binaryData": binary}
    if document.get("immutable") is True:
        stored["immutable"] = True
    return stored


def _texts(document: Mapping[str, Any], field: str) -> dict[str, str]:
    found = document.get(field)
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for pair in found.items() for value in pair):
        raise RefusedError(f"{field}: must be a map of strings (write numbers and booleans in quotes)")
    return dict(found)


def _without_line_breaks(encoded: Mapping[str, str]) -> dict[str, str]:
    """Return the base64 values as one line each; the API server also accepts several, as `base64` prints them."""
    return {key: value.replace("\r", "").replace("\n", "") for key, value in encoded.items()}


def _decoded_size(key: str, value: str) -> int:
    try:
        return len(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        raise RefusedError(f"data[{key!r}]: is not base64") from None


def check_room(sizes: Mapping[str, int], file_name: str, size: int) -> None:
    """Raise RefusedError where the files, by name with their sizes in bytes, leave no room for this one."""
    others = {name: known for name, known in sizes.items() if name != file_name}
    if size > MAX_APPLIED_BYTES:
        message = f"larger than the {MAX_APPLIED_BYTES} bytes an object may have"
        raise RefusedError(message, "RequestEntityTooLarge", 413)
    if len(others) >= MAX_FILES:
        raise RefusedError(f"exceeded quota: {MAX_FILES} objects are the most (delete some)", "Forbidden", 403)
    if sum(others.values()) + size > MAX_BYTES:
        raise RefusedError(f"exceeded quota: {MAX_BYTES >> 20} MiB are the most (delete some)", "Forbidden", 403)


def check_immutable(before: bytes | None, after: bytes) -> None:
    """Raise RefusedError where the file of an immutable object would get other data."""
    if before is None or before == after:
        return
    try:
        old = orjson.loads(before)
    except orjson.JSONDecodeError:
        return  # it was written by hand, and may be anything
    if isinstance(old, dict) and old.get("immutable") is True:
        raise RefusedError("data: Forbidden: field is immutable when `immutable` is set (delete the object first)")
