"""Decides what the text of a flag becomes, for every type of flag (config.md 1.3): values as a file would have
them.

Pure. The messages are those of Go's flags, which operators search for; the remedy is the caller's.
"""

import ipaddress
import re
from collections.abc import Callable
from typing import Any

from shared.config.durations import format_duration, parse_nanoseconds
from shared.config.fields import FlagKind
from shared.config.flag_csv import csv_fields
from shared.config.flag_text import shown
from shared.model.quantity import parse_quantity
from shared.podspec.names import label_value, qualified_name
from shared.version import KUBERNETES_VERSION, RELEASES, release_tag

IGNORED = object()  # the text has no value; the value before it stays

_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")
_INTEGER = re.compile(
    r"[+-]?(0|[1-9](_?[0-9])*|0(_?[0-7])+|0[oO](_?[0-7])+|0[xX](_?[0-9a-fA-F])+|0[bB](_?[01])+)", re.ASCII
)
_FLOAT = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|inf(inity)?|nan)", re.ASCII | re.IGNORECASE)
_MAX_NUMBER_CHARACTERS = 400
_UNITS = ("ns", "us", "µs", "μs", "ms", "s", "m", "h")
_MAX_ADDRESS_CHARACTERS = 64
_VERSION = re.compile(r"(v[0-9]+\.[0-9]+\.[0-9]+)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def parse_value(kind: FlagKind, text: str, before: Any) -> Any:
    """Return the value after this occurrence of a flag; `before` is that of the earlier ones, None at the first.

    Returns IGNORED where the text changes nothing. May change `before` in place. Raises ValueError.
    """
    return _PARSERS[kind](text, before)


def _duration(text: str, _before: Any) -> str:
    try:
        return format_duration(parse_nanoseconds(text))
    except ValueError:
        raise ValueError(f"time: {_duration_fault(text)} {shown(text)}") from None


def _duration_fault(text: str) -> str:
    rest = text[1:] if text[:1] in ("+", "-") else text
    if not rest or rest[0] not in "0123456789.":
        return "invalid duration"
    for number, unit in re.findall(r"([0-9.]+)([^0-9.]*)", rest):
        if number == "." or number.count(".") > 1:
            return "invalid duration"
        if unit not in _UNITS:
            return f"unknown unit {shown(unit)} in duration" if unit else "missing unit in duration"
    return "invalid duration"


def _bool(text: str) -> bool:
    if text not in _TRUE + _FALSE:
        raise ValueError(f"strconv.ParseBool: parsing {shown(text)}: invalid syntax")
    return text in _TRUE


def _integer(bits: int) -> Callable[[str, Any], int]:
    def parse(text: str, _before: Any) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError(f"strconv.ParseInt: parsing {shown(text)}: invalid syntax")
        digits = text.lstrip("+-")
        octal = digits[0] == "0" and digits[1:2] in {"", "_", *"01234567"}
        value = int(digits, 8 if octal else 0) if len(digits) <= _MAX_NUMBER_CHARACTERS else 2**bits
        value = -value if text[0] == "-" else value
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise ValueError(f"strconv.ParseInt: parsing {shown(text)}: value out of range")
        return value

    return parse


def _level(text: str, _before: Any = None) -> int:
    if not re.fullmatch("[0-9]+", text, re.ASCII):
        raise ValueError(f"strconv.ParseUint: parsing {shown(text)}: invalid syntax")
    if len(text) > _MAX_NUMBER_CHARACTERS or int(text) >= 2**31:
        raise ValueError(f"strconv.ParseUint: parsing {shown(text)}: value out of range")
    return int(text)


def _float(text: str, _before: Any) -> float:
    if len(text) > _MAX_NUMBER_CHARACTERS or not _FLOAT.fullmatch(text):
        raise ValueError(f"strconv.ParseFloat: parsing {shown(text)}: invalid syntax")
    return float(text)


def _strings(text: str, before: list[str] | None) -> list[str]:
    items = [] if before is None else before
    items += csv_fields(text)
    return items


def _pairs(separator: str, shape: str) -> Callable[[str, dict[str, str] | None], dict[str, str]]:
    def parse(text: str, before: dict[str, str] | None) -> dict[str, str]:
        pairs = {} if before is None else before
        for item in filter(None, text.split(",")):
            name, value = _pair(item, separator, shape)
            pairs[name] = value
        return pairs

    return parse


def _pair(item: str, separator: str, shape: str) -> tuple[str, str]:
    name, found, value = item.partition(separator)
    if not found:
        raise ValueError(f"malformed pair, expect {shape}")
    return name.strip(), value.strip()


def _one_pair(text: str, before: dict[str, str] | None) -> dict[str, str]:
    name, value = _pair(text, "=", "string=string")
    return {**(before or {}), name: value}


def _labels(text: str, before: dict[str, str] | None) -> dict[str, str]:
    labels = {} if before is None else before
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        labels[name.strip()] = value.strip()
    return labels


def _gates(text: str, before: dict[str, bool] | None) -> dict[str, bool]:
    gates = {} if before is None else before
    for item in filter(None, text.split(",")):
        name, value = _pair(item, "=", "string=bool")
        try:
            gates[name] = _bool(value)
        except ValueError as error:
            raise ValueError(f"invalid value of {shown(name)[1:-1]}: {shown(value)[1:-1]}, err: {error}") from error
    return gates


def _multimap(text: str, before: dict[str, list[str]] | None) -> dict[str, list[str]]:
    headers = {} if before is None else before
    for item in filter(None, text.split(",")):
        name, value = _pair(item, ":", "string:string")
        headers.setdefault(name, []).append(value)
    return headers


def _ip(text: str, _before: Any) -> Any:
    if not text:
        return IGNORED
    # Zeros in front count for nothing, as they did before Go refused them.
    plain = re.sub(r"(^|[.:])0+(?=[0-9]+(\.|$))", r"\1", text, flags=re.ASCII) if "." in text else text
    try:
        if len(text) > _MAX_ADDRESS_CHARACTERS or "%" in text:
            raise ValueError
        return str(ipaddress.ip_address(plain))
    except ValueError:
        raise ValueError(f"{shown(text)} is not a valid IP address") from None


def _quantity(text: str, _before: Any = None) -> str:
    quantity = parse_quantity(text)
    if text.strip() != text:
        parse_quantity("")  # spaces around it are no part of a quantity
    return str(quantity)


def _reserved_memory(text: str, before: list[dict[str, Any]] | None) -> Any:
    if not text:
        return IGNORED
    reserved = [] if before is None else before
    for item in text.split(";"):
        node, colon, listed = item.partition(":")
        if not colon or ":" in listed:
            raise ValueError(f"{shown(item)} does not have the format numaNode:type=quantity[,type=quantity]")
        limits = {}
        for limit in listed.split(","):
            name, found, amount = limit.partition("=")
            if not found or "=" in amount:
                raise ValueError(f"{shown(limit)} does not have the format type=quantity")
            if name != "memory" and not name.startswith("hugepages-"):
                raise ValueError(f"unknown type of memory {shown(name)}, known are memory and hugepages-<size>")
            limits[name] = _quantity(amount)
        reserved.append({"numaNode": _integer(32)(node, None), "limits": limits})
    return reserved


def _taints(text: str, _before: Any) -> list[dict[str, str]]:
    taints: list[dict[str, str]] = []
    for item in text.split(",") if text else ():
        taint = _taint(item.removesuffix("-"))
        if item.endswith("-"):
            continue
        if "effect" not in taint:
            raise ValueError(f"invalid taint spec: {shown(item)[1:-1]}")
        if any((taint["key"], taint["effect"]) == (other["key"], other["effect"]) for other in taints):
            raise ValueError(f"duplicated taints with the same key and effect: {shown(item)[1:-1]}")
        taints.append(taint)
    return taints


def _taint(item: str) -> dict[str, str]:
    head, colon, effect = item.partition(":")
    key, equals, value = head.partition("=")
    if ":" in effect or "=" in value or (colon and not effect):
        raise ValueError(f"invalid taint spec: {shown(item)[1:-1]}")
    if effect and effect not in _EFFECTS:
        raise ValueError(f"invalid taint effect: {shown(effect)[1:-1]}, unsupported taint effect")
    if wrong := qualified_name(key) + (label_value(value) if equals else []):
        raise ValueError(f"invalid taint spec: {shown(item)[1:-1]}, {'; '.join(wrong)}")
    return {"key": key} | ({"value": value} if value else {}) | ({"effect": effect} if effect else {})


def _vmodule(text: str, before: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    patterns = [] if before is None else before
    for item in filter(None, text.split(",")):
        pattern, _, level = item.partition("=")
        if not pattern or not level or "=" in level:
            raise ValueError(f"{shown(item)} does not have the pattern=N format")
        try:
            patterns.append({"filePattern": pattern, "verbosity": _level(level)})
        except ValueError as error:
            raise ValueError(f"parsing verbosity in {shown(item)}: {error}") from error
    return patterns


def _version(text: str, _before: Any) -> str:
    if text == "raw":
        return text
    if text.startswith("v"):
        match = _VERSION.fullmatch(text) if len(text) <= _MAX_NUMBER_CHARACTERS else None
        if match is None:
            raise ValueError(f"{shown(text)} is not a version such as {release_tag(KUBERNETES_VERSION)}-1")
        if match[1] not in (tags := [release_tag(release) for release in RELEASES]):
            raise ValueError(f"{shown(text)} is another release than the built-in {', '.join(tags)}")
        return text
    return "true" if _bool(text) else "false"


_PARSERS: dict[FlagKind, Callable[[str, Any], Any]] = {
    FlagKind.BOOL: lambda text, _: _bool(text),
    FlagKind.INT32: _integer(32),
    FlagKind.INT: _integer(64),
    FlagKind.FLOAT64: _float,
    FlagKind.STRING: lambda text, _: text,
    FlagKind.DURATION: _duration,
    FlagKind.STRINGS: _strings,
    FlagKind.MAP: _pairs("=", "string=string"),
    FlagKind.LABELS: _labels,
    FlagKind.THRESHOLDS: _pairs("<", "string<string"),
    FlagKind.PAIR: _one_pair,
    FlagKind.GATES: _gates,
    FlagKind.IP: _ip,
    FlagKind.QUANTITY: _quantity,
    FlagKind.LEVEL: _level,
    FlagKind.VMODULE: _vmodule,
    FlagKind.RESERVED_MEMORY: _reserved_memory,
    FlagKind.TAINTS: _taints,
    FlagKind.MULTIMAP: _multimap,
    FlagKind.VERSION: _version,
}
