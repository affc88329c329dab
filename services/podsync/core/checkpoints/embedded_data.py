"""Reads the content that newer kubelets keep in a string of the CPU and memory managers' files (node.md 4.14)."""

from typing import Any

import orjson

from services.podsync.core.checkpoints.checksums import CheckpointError, Fault, corrupted, text_checksum


def embedded_data(raw: dict[str, Any]) -> dict[str, Any] | None:
    """Return the object in the string `data`, None for a file without one. Raises CheckpointError."""
    text = raw.get("data")
    if text is None:
        return None
    if not isinstance(text, str):
        raise CheckpointError(Fault.UNKNOWN_FORM, "data is not a string")
    if raw.get("dataChecksum") != text_checksum(text):
        raise corrupted()
    try:
        inner = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise CheckpointError(Fault.NOT_JSON, "data is not JSON") from None
    if not isinstance(inner, dict):
        raise CheckpointError(Fault.UNKNOWN_FORM, "data is not a JSON object")
    return inner
