"""JSON bytes of plain values, structs, dataclasses and enums: no string makes a value unencodable, whatever is in it.

Names from a file system may hold bytes that are not UTF-8; Python keeps them as lone surrogates, which JSON cannot
hold. Pure.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import asdict

_MAX_DEPTH = 254  # levels, as orjson has it


def json_bytes(value: Any, *, default: Callable[[Any], Any] | None = None, option: int = 0) -> bytes:
    """Return the value as `orjson.dumps` does, with each lone surrogate as an escape (see `valid_text`).

    Raises TypeError (orjson.JSONEncodeError) for what is no JSON for another reason: a set, a key that is no string,
    more than 254 levels.
    """

    def plain(part: Any) -> Any:
        if isinstance(part, Struct):
            return asdict(part)
        if default is None:
            raise TypeError(f"type {type(part).__name__} is no JSON")
        return default(part)

    try:
        return orjson.dumps(value, default=plain, option=option)
    except TypeError:
        return orjson.dumps(_valid(value, 0), default=plain, option=option)


def valid_text(text: str) -> str:
    r"""Return the text with each lone surrogate escaped: `\xff` for a byte that was no UTF-8, `\ud800` for any
    other."""
    return "".join([_escaped(c) if "\ud800" <= c <= "\udfff" else c for c in text])


def _escaped(surrogate: str) -> str:
    code = ord(surrogate)
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def _valid(value: Any, level: int) -> Any:
    if level > _MAX_DEPTH:
        return value  # the encoder refuses it
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, dict):
        return {_valid(key, level + 1): _valid(item, level + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_valid(item, level + 1) for item in value]
    if isinstance(value, Struct):
        return _valid(asdict(value), level)
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _valid(getattr(value, field.name), level + 1) for field in fields(value) if field.name[0] != "_"
        }
    return value
