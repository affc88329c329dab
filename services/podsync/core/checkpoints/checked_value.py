"""Reads and writes what the files of the CPU and the memory manager have in common: a checksum over the dump of a Go
struct, and from newer kubelets the content again in a string `data`, which then counts (node.md 4.14).
"""

from collections.abc import Iterable
from typing import Any

import orjson

from shared.go_checkpoints.checksums import (
    CheckpointError,
    Fault,
    corrupted,
    dump_checksum,
    load_checkpoint,
    text_checksum,
)
from shared.go_checkpoints.go_types import Field, GoNumber, GoStruct, GoText, GoType, GoValueError


def forms_of_file(
    name: str, own: Field, entries: GoType, pod_entries: GoType, *, later: tuple[str, str]
) -> tuple[GoStruct, GoStruct, tuple[GoStruct, ...]]:
    """Return the form without pods, the one with pods, and all whose dump the checksum of some version covers. `name`:
    of the first Go type; `later`: what was put after it for those without and with pods; `own`: the field of this file
    beside those that both files have."""

    def form(suffix: str, *, pods: bool) -> GoStruct:
        fields = [
            Field("PolicyName", GoText(), "policyName"),
            own,
            Field("Entries", entries, "entries", omit_empty=True, empty_map=True),
            *([Field("PodEntries", pod_entries, "podEntries", omit_empty=True, empty_map=True)] if pods else []),
            Field("Checksum", GoNumber("checksum.Checksum"), "checksum"),
        ]
        return GoStruct(f"state.{name}{suffix}", tuple(fields), "*")

    without, beside = form("", pods=False), form("", pods=True)
    return without, beside, (without, beside, form(later[0], pods=False), form(later[1], pods=True))


def read_value(content: bytes, form: GoStruct, written: Iterable[GoStruct]) -> dict[str, Any]:
    """Return the value of the file, which has this form. `written`: the forms whose dump the checksum of some version
    of the kubelet covers; a checksum of 0 is not compared. Raises CheckpointError."""
    raw = load_checkpoint(content)
    inner = _embedded_data(raw)
    try:
        value: dict[str, Any] = form.from_json(raw if inner is None else inner)
    except GoValueError as error:
        raise CheckpointError(Fault.UNKNOWN_FORM, str(error)) from None
    checksum = value["checksum"]
    if inner is None and checksum and checksum not in {_checksum(other, value) for other in written}:
        raise corrupted()
    return value


def write_value(form: GoStruct, value: dict[str, Any]) -> bytes:
    """Return the content of the file. `value` needs no checksum."""
    return form.json_text({**value, "checksum": _checksum(form, value)}).encode()


def _checksum(form: GoStruct, value: dict[str, Any]) -> int:
    return dump_checksum(form.dump({**value, "checksum": 0}))


def _embedded_data(raw: dict[str, Any]) -> dict[str, Any] | None:
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
