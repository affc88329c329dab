"""Decodes YAML and JSON manifests, one document in each file, within the kubelet's limit of size. Pure."""

from typing import Any

import orjson

from shared.yaml_reader.reader import Limits, UnreadableError, read_documents

MAX_BYTES = 10 * 1024 * 1024  # the kubelet's limit for manifests (pods.md 0.1)
MAX_DEPTH = 100  # levels
MAX_VALUES = 500_000  # scalars and collections: a pod is checked in time proportional to them
LIMITS = Limits(depth=MAX_DEPTH, values=MAX_VALUES, characters=MAX_BYTES)


class UnreadableManifestError(Exception):
    """The bytes are no single YAML or JSON document. `str()` is one line with the reason."""


def read_document(content: bytes) -> Any:
    """Return the one document of a manifest as JSON values. Further documents are ignored if they are empty.

    It takes seconds for the largest manifests. Raises UnreadableManifestError where the manifest is too large, is not
    YAML, or has more than one document or values that JSON does not have.
    """
    if len(content) > MAX_BYTES:
        raise UnreadableManifestError(f"larger than the {MAX_BYTES // (1024 * 1024)} MiB a manifest may have")
    if not content.strip():
        raise UnreadableManifestError("the file is empty")
    if content.lstrip().startswith(b"{"):
        try:
            document = orjson.loads(content)
        except orjson.JSONDecodeError:
            pass  # it may be a YAML flow mapping, and if it is invalid, YAML's error names the line
        else:
            _check_size(document)
            return document
    try:
        documents = [document for document in read_documents(content, LIMITS) if document is not None]
    except UnreadableError as error:
        raise UnreadableManifestError(f"not YAML: {error}" if error.is_syntax else str(error)) from error
    if not documents:
        raise UnreadableManifestError("the file holds no document")
    if len(documents) > 1:
        raise UnreadableManifestError(
            f"{len(documents)} YAML documents in one file, only one pod per file is read; give each its own file"
        )
    return documents[0]


def _check_size(document: Any) -> None:
    level, values = [document], 1
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        values += len(level)
        if values > MAX_VALUES:
            raise UnreadableManifestError(f"holds more than {MAX_VALUES} values")
        if not level:
            return
    raise UnreadableManifestError(f"is nested deeper than {MAX_DEPTH} levels")
