"""YAML and JSON manifests to plain JSON values, as the kubelet's decoder reads them (YAML 1.1 scalars); pure.

The tree is built from parse events, not by PyYAML's composer: that one recurses in C, so that a file of a hundred
thousand brackets would end the process, and it follows aliases without end.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

import orjson
import yaml

MAX_BYTES = 10 * 1024 * 1024  # the kubelet's limit for manifests (pods.md 0.1)
MAX_DEPTH = 100
MAX_EXPANDED = 2 * MAX_BYTES  # values and their characters, after aliases are expanded

_CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_TAG = "tag:yaml.org,2002:"


class UnreadableManifestError(Exception):
    """The bytes are no single YAML or JSON document. `str()` is one line saying why."""


def read_document(content: bytes) -> Any:
    """The one document in a manifest, as JSON values. Empty further documents are passed over.

    Raises UnreadableManifestError: too large, not YAML, more than one document, values JSON does not have.
    """
    if len(content) > MAX_BYTES:
        raise UnreadableManifestError(f"larger than the {MAX_BYTES // (1024 * 1024)} MiB a manifest may have")
    if not content.strip():
        raise UnreadableManifestError("the file is empty")
    if content.lstrip().startswith(b"{"):
        try:
            document = orjson.loads(content)
        except orjson.JSONDecodeError:
            pass  # a YAML flow mapping, or broken: YAML's message names the line
        else:
            _check_depth(document)
            return document
    try:
        documents = [document for document in _documents(content) if document is not None]
    except yaml.YAMLError as error:
        raise UnreadableManifestError(_one_line(error)) from error
    except (ValueError, OverflowError) as error:
        raise UnreadableManifestError(f"not YAML: {error}") from error
    if not documents:
        raise UnreadableManifestError("the file holds no document")
    if len(documents) > 1:
        raise UnreadableManifestError(
            f"{len(documents)} YAML documents in one file, only one pod per file is read; give each its own file"
        )
    return documents[0]


def _check_depth(document: Any) -> None:
    level = [document]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise UnreadableManifestError(f"nested deeper than {MAX_DEPTH} levels")


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or error).split("\n", 1)[0]
    return f"not YAML: line {mark.line + 1}: {problem}" if mark is not None else f"not YAML: {problem}"


def _documents(content: bytes) -> Iterator[Any]:
    builder: _Builder | None = None
    for event in yaml.parse(content, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.DocumentStartEvent):
            builder = _Builder()
        elif isinstance(event, yaml.DocumentEndEvent):
            assert builder is not None
            yield builder.value
        elif builder is not None:
            builder.take(event)


class _Builder:
    """One document from its parse events, without recursion."""

    def __init__(self) -> None:
        self.value: Any = None
        self._open: list[tuple[list[Any], str | None]] = []  # items so far, anchor
        self._sizes: list[int] = [0]  # expanded size of each open collection
        self._anchors: dict[str, tuple[Any, int]] = {}  # finished value and its size

    def take(self, event: yaml.Event) -> None:
        match event:
            case yaml.ScalarEvent():
                self._place(_scalar(event), event.anchor, 1 + len(event.value))
            case yaml.AliasEvent():
                if event.anchor not in self._anchors:
                    raise UnreadableManifestError(f"not YAML: alias *{event.anchor} names no finished anchor")
                value, size = self._anchors[event.anchor]
                self._place(value, None, size)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                if len(self._open) >= MAX_DEPTH:
                    raise UnreadableManifestError(f"nested deeper than {MAX_DEPTH} levels")
                self._open.append(([], event.anchor))
                self._sizes.append(1)
            case yaml.SequenceEndEvent():
                items, anchor = self._open.pop()
                self._place([_no_merge(item) for item in items], anchor, self._sizes.pop())
            case yaml.MappingEndEvent():
                items, anchor = self._open.pop()
                self._place(_mapping(items), anchor, self._sizes.pop())

    def _place(self, value: Any, anchor: str | None, size: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (_no_merge(value), size)
        self._sizes[-1] += size
        if self._sizes[-1] > MAX_EXPANDED:
            raise UnreadableManifestError("its aliases expand to more than a manifest may hold")
        if self._open:
            self._open[-1][0].append(value)
        else:
            self.value = _no_merge(value)


class _MergeKey:
    """The plain key `<<`."""


_MERGE = _MergeKey()


def _scalar(event: yaml.ScalarEvent) -> Any:
    text: str = event.value
    if event.tag is not None and event.tag != "!":
        return _tagged(event.tag, text)
    if event.tag == "!" or not event.implicit[0]:  # quoted or block text
        return text
    if text == "<<":
        return _MERGE
    return _plain(text)


def _plain(text: str) -> Any:
    if text in _CONSTANTS:
        return _finite(_CONSTANTS[text], text)
    digits = text.replace("_", "")
    if text[:1] in "+-.0123456789":
        if _INTEGER.fullmatch(digits):
            return _integer(digits)
        if _FLOAT.fullmatch(digits):
            return _finite(float(digits), text)
    return text


def _integer(digits: str) -> int | float:
    """Beyond 64 bits numbers become floating point, as in Go."""
    value = _any_integer(digits)
    return value if -(2**63) <= value < 2**64 else float(value)


def _any_integer(digits: str) -> int:
    sign = -1 if digits.startswith("-") else 1
    body = digits.lstrip("+-").lower()
    if body.startswith(("0x", "0b", "0o")):
        return sign * int(body, 0)
    return sign * int(body, 8 if len(body) > 1 and body.startswith("0") else 10)


def _finite(value: Any, text: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise UnreadableManifestError(f"{text} has no place in JSON")
    return value


def _tagged(tag: str, text: str) -> Any:
    value = _plain(text)
    match tag.removeprefix(_TAG):
        case "str":
            return text
        case "int" if isinstance(value, int):
            return value
        case "float" if isinstance(value, int | float):
            return float(value)
        case "bool" if isinstance(value, bool):
            return value
        case "null":
            return None
    raise UnreadableManifestError(f"{tag.replace(_TAG, '!!')} {text[:40]!r} cannot be read")


def _mapping(items: list[Any]) -> dict[str, Any]:
    """Keys become strings as JSON wants them; a later duplicate wins; merge keys give way to the mapping's own."""
    result: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key, value in zip(items[::2], items[1::2], strict=True):
        if key is _MERGE:
            for part in value if isinstance(value, list) else [value]:
                if not isinstance(part, dict):
                    raise UnreadableManifestError("not YAML: << must name a mapping or a list of mappings")
                merged = part | merged
        else:
            result[_key(key)] = _no_merge(value)
    return merged | result


def _no_merge(value: Any) -> Any:
    """`<<` anywhere but as a key is plain text."""
    return "<<" if value is _MERGE else value


def _key(key: Any) -> str:
    match key:
        case str():
            return key
        case bool():
            return "true" if key else "false"
        case int() | float():
            return str(key)
        case None:
            return "null"
    raise UnreadableManifestError("not YAML: a key must be a single value")
