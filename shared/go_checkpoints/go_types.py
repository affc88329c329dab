"""Has the types of Go's checkpoint structs: their values from JSON, to JSON, and in the dump that a checksum covers.

A value is what JSON has: a dict by JSON key for a struct, a dict for a map, a list for a slice, None for nil. The dump
(node.md 4.14 "Dump grammar") has the type's name before the outermost value and before each field of a struct, and none
before elements of maps and slices. `shared/model/schema.py` describes JSON alone: it knows neither the names of Go's
types nor nil, which the dump writes.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from shared.podspec.go_json import go_json

_NIL = "<nil>"
_BITS = {"int": (-(1 << 63), 1 << 63), "uint64": (0, 1 << 64), "uint32": (0, 1 << 32)}


class GoValueError(ValueError):
    """Says that a JSON value has not the shape of the type. The message names the place and the shape."""


class GoType(Struct, frozen=True):
    """Has the name that the dump writes in parentheses, such as map[string][]string."""

    name: str

    def from_json(self, raw: Any, place: str = "") -> Any:
        """Return the value that Go's decoder would make of it. Raises GoValueError."""
        raise NotImplementedError

    def to_json(self, value: Any) -> Any:
        """Return what Go's encoder writes, with keys in its order."""
        raise NotImplementedError

    def bare_dump(self, value: Any) -> str:
        """Return the dump without the type's name."""
        raise NotImplementedError

    def dump(self, value: Any) -> str:
        """Return the dump of an outermost value or of a field."""
        return f"({self.name}){self.bare_dump(value)}"

    def json_text(self, value: Any) -> str:
        """Return the JSON as Go writes it."""
        return go_json(self.to_json(value))


class GoText(GoType, frozen=True):
    """Describes a string."""

    name: str = "string"

    def from_json(self, raw: Any, place: str = "") -> Any:
        if raw is not None and not isinstance(raw, str):
            raise GoValueError(f"{place} is not a string")
        return raw or ""

    def to_json(self, value: Any) -> Any:
        return value

    def bare_dump(self, value: Any) -> str:
        return str(value)


class GoNumber(GoType, frozen=True):
    """Describes a whole number; `size` is the Go type that limits it."""

    size: str = "uint64"

    def from_json(self, raw: Any, place: str = "") -> Any:
        low, high = _BITS[self.size]
        if raw is not None and (not isinstance(raw, int) or isinstance(raw, bool) or not low <= raw < high):
            raise GoValueError(f"{place} is not a number of type {self.size}")
        return raw or 0

    def to_json(self, value: Any) -> Any:
        return value

    def bare_dump(self, value: Any) -> str:
        return str(value)


class GoBytes(GoType, frozen=True):
    """Describes bytes, which are base64 in JSON; None = nil."""

    name: str = "[]uint8"

    def from_json(self, raw: Any, place: str = "") -> Any:
        if raw is None:
            return None
        try:
            return base64.b64decode(raw, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise GoValueError(f"{place} is not base64") from None

    def to_json(self, value: Any) -> Any:
        return None if value is None else base64.b64encode(value).decode()

    def bare_dump(self, value: Any) -> str:
        return _NIL if value is None else f"[{' '.join(map(str, value))}]"


class GoMap(GoType, frozen=True):
    """Describes a map, whose keys are strings, or numbers where `numbered`; None = nil."""

    value: GoType
    numbered: bool = False

    def from_json(self, raw: Any, place: str = "") -> Any:
        if raw is None:
            return None
        if not isinstance(raw, dict):
            raise GoValueError(f"{place} is not an object")
        return {self._key(key, place): self.value.from_json(one, f"{place}[{key}]") for key, one in raw.items()}

    def _key(self, key: str, place: str) -> Any:
        digits = key.removeprefix("-")
        if not self.numbered:
            return key
        if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
            raise GoValueError(f"{place} has the key {key[:32]!a}, which is not a number")
        return int(key)

    def to_json(self, value: Any) -> Any:
        if value is None:
            return None
        return {key: self.value.to_json(one) for key, one in sorted((str(key), one) for key, one in value.items())}

    def bare_dump(self, value: Any) -> str:
        if value is None:
            return _NIL
        return f"map[{' '.join(f'{key}:{self.value.bare_dump(value[key])}' for key in sorted(value))}]"


class GoSlice(GoType, frozen=True):
    """Describes a slice; None = nil."""

    element: GoType

    def from_json(self, raw: Any, place: str = "") -> Any:
        if raw is None:
            return None
        if not isinstance(raw, list):
            raise GoValueError(f"{place} is not a list")
        return [self.element.from_json(one, f"{place}[{index}]") for index, one in enumerate(raw)]

    def to_json(self, value: Any) -> Any:
        return None if value is None else [self.element.to_json(one) for one in value]

    def bare_dump(self, value: Any) -> str:
        return _NIL if value is None else f"[{' '.join(self.element.bare_dump(one) for one in value)}]"


class Field(Struct, frozen=True):
    """Describes a field of a struct. `empty_map`: the decoder begins with an empty map instead of nil."""

    name: str
    type: GoType
    key: str
    omit_empty: bool = False
    empty_map: bool = False


class GoStruct(GoType, frozen=True):
    """Describes a struct. `pointer`: "*" where the outermost value is a pointer to it, "<*>" where an element is one,
    of which None = nil; "" = no pointer."""

    fields: tuple[Field, ...]
    pointer: str = ""

    def from_json(self, raw: Any, place: str = "") -> Any:
        if raw is None and self.pointer == "<*>":
            return None
        if raw is not None and not isinstance(raw, dict):
            raise GoValueError(f"{place or 'the file'} is not an object")
        given: Mapping[str, Any] = raw or {}
        return {
            field.key: {}
            if field.empty_map and field.key not in given
            else field.type.from_json(given.get(field.key), f"{place}.{field.key}".lstrip("."))
            for field in self.fields
        }

    def to_json(self, value: Any) -> Any:
        if value is None:
            return None
        return {
            field.key: field.type.to_json(value[field.key])
            for field in self.fields
            if not field.omit_empty or value[field.key]
        }

    def bare_dump(self, value: Any) -> str:
        if value is None:
            return _NIL
        fields = " ".join(f"{field.name}:{field.type.dump(value[field.key])}" for field in self.fields)
        return f"{self.pointer if self.pointer == '<*>' else ''}{{{fields}}}"

    def dump(self, value: Any) -> str:
        return f"({self.pointer if self.pointer == '*' else ''}{self.name}){self.bare_dump(value)}"
