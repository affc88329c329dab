"""Compares plain data with the table of fields, as the kubelet's decoder does (config.md 2.1, 3.4, 3.5).

Decides what is unknown, misspelt, or of the wrong type, and makes of the rest data with the table's own spelling. What
is unknown is strict: ignored and reported. A wrong type refuses the configuration. Pure; knows no default.
"""

from dataclasses import dataclass, field
from typing import Any

from shared.config.durations import parse_nanoseconds
from shared.config.findings import ERROR, STRICT, WARNING, Findings
from shared.config.spelling import closest
from shared.model.quantity import QuantityError, parse_quantity
from shared.model.schema import INTEGER_LIMITS, ListOf, MapOf, Scalar, Schema, is_of_type

_BAD = object()


@dataclass
class Decoded:
    """Data in the table's spelling, without nulls and unknown keys; `places` maps its dotted keys to places."""

    data: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)


def decode(
    data: dict[str, Any],
    schema: dict[str, Schema],
    places: dict[str, str],
    findings: Findings,
    *,
    any_case: bool = False,
    unknown: str = STRICT,
) -> Decoded:
    """Decode nested data; `places` are those of its keys as they are written.

    `any_case`: a misspelt case is read as the key it means, where that one is not there itself. `unknown` is the
    severity of unknown keys.
    """
    decoder = _Decoder(places, findings, any_case, unknown)
    return Decoded(decoder.struct(data, schema, "", ""), decoder.placed)


class _Decoder:
    def __init__(self, places: dict[str, str], findings: Findings, any_case: bool, unknown: str) -> None:
        self._places, self._findings, self._any_case, self._unknown = places, findings, any_case, unknown
        self.placed: dict[str, str] = {}

    def struct(self, data: dict[str, Any], schema: dict[str, Schema], written: str, key: str) -> dict[str, Any]:
        """Return a mapping with known keys. `written` is its dotted key in the file, `key` that of the table."""
        result: dict[str, Any] = {}
        folded = {name.lower(): name for name in schema} if self._any_case else {}
        for name in sorted(data, key=lambda name: (name in schema, name)):  # what is spelled correctly comes last
            here = f"{written}.{name}" if written else name
            target = name if name in schema else folded.get(name.lower())
            if target is None:
                self._note_unknown(name, here, schema)
                continue
            if data[name] is None:
                continue
            if target != name:
                self._note_case(here, target, overruled=target in data and not isinstance(data[name], dict))
            there = f"{key}.{target}" if key else target
            value = self._value(data[name], schema[target], here, there)
            if value is _BAD:
                continue
            earlier = result.get(target)
            if isinstance(earlier, dict) and isinstance(value, dict):
                value = _merged(earlier, value)
            result[target] = value
            self._place(here, there)
        return result

    def _place(self, written: str, key: str) -> None:
        if place := self._places.get(written):
            self.placed[key] = place
        else:
            self.placed.pop(key, None)

    def _note_unknown(self, name: str, written: str, schema: dict[str, Schema]) -> None:
        close = "" if self._findings.full else closest(name, list(schema))
        remedy = f'did you mean "{close}"?' if close else "remove it"
        what = "unknown key" if self._unknown == ERROR else "unknown key, ignored"
        self._findings.add(written, what, remedy, self._place_of(written), self._unknown)

    def _note_case(self, written: str, target: str, *, overruled: bool) -> None:
        what = f"unknown key, ignored, for {target} is set" if overruled else f"is read as {target}"
        severity = STRICT if overruled else WARNING
        self._findings.add(written, what, f'write it as "{target}"', self._place_of(written), severity)

    def _place_of(self, written: str) -> str:
        key = written
        while key not in self._places and ("." in key or "[" in key):
            key = key[: max(key.rfind("."), key.rfind("["))]
        return self._places.get(key, self._findings.default_place)

    def _value(self, value: Any, schema: Schema, written: str, key: str) -> Any:
        """Return the value, or _BAD after a finding."""
        if isinstance(schema, dict):
            if isinstance(value, dict):
                return self.struct(value, schema, written, key)
            return self._bad(value, written, key, "must be a mapping", f"its keys are {', '.join(schema)}")
        if isinstance(schema, MapOf):
            if not isinstance(value, dict):
                return self._bad(value, written, key, "must be a mapping", "write `name: value` lines")
            items = {}
            for name, item in value.items():
                items[name] = self._item(item, schema.value, f"{written}.{name}", f"{key}.{name}")
                self._place(f"{written}.{name}", f"{key}.{name}")
            return {name: item for name, item in items.items() if item is not _BAD}
        if isinstance(schema, ListOf):
            if not isinstance(value, list):
                return self._bad(value, written, key, "must be a list", "write `- value` lines, or [value, value]")
            listed = [
                self._item(item, schema.item, f"{written}[{index}]", f"{key}[{index}]")
                for index, item in enumerate(value)
            ]
            return [item for item in listed if item is not _BAD]
        return self._scalar(value, schema, written, key)

    def _item(self, item: Any, schema: Schema, written: str, key: str) -> Any:
        """Return an item of a list or map; null is the zero value of its type."""
        if item is not None:
            return self._value(item, schema, written, key)
        if isinstance(schema, ListOf):
            return []
        if isinstance(schema, MapOf | dict):
            return {}
        return {Scalar.BOOLEAN: False, Scalar.STRING: "", Scalar.QUANTITY: "0"}.get(schema, 0)

    def _scalar(self, value: Any, kind: Scalar, written: str, key: str) -> Any:
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e21 and kind in INTEGER_LIMITS:
            value = int(value)  # JSON, into which YAML is turned, has one kind of number
        fits = is_of_type(value, kind)
        if kind is Scalar.BOOLEAN:
            remedy = "write true or false without quotes"
        elif kind in INTEGER_LIMITS or kind is Scalar.FLOAT64:
            remedy = "write a number without quotes"
        elif kind is Scalar.STRING:
            remedy = "put it in quotes"
        elif kind is Scalar.QUANTITY:
            if isinstance(value, int | float) and not isinstance(value, bool):  # JSON's numbers are quantities, too
                value = repr(value)
            fits, remedy = isinstance(value, str) and _is_quantity(value), 'such as "100Mi"'
        else:
            remedy = 'write numbers with units ns, us, ms, s, m, h, as in "20s"'
            fits = fits and (isinstance(value, int) or _is_duration(value))
        return value if fits else self._bad(value, written, key, f"must be {kind}", remedy)

    def _bad(self, value: Any, written: str, key: str, wanted: str, remedy: str) -> Any:
        what = f"is {_shown(value, key)}, {wanted}"
        self._findings.add(written, what, remedy, self._place_of(written))
        return _BAD


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    result = dict(first)
    for name, value in second.items():
        earlier = result.get(name)
        both = isinstance(earlier, dict) and isinstance(value, dict)
        result[name] = _merged(earlier or {}, value) if both else value
    return result


def _is_duration(value: Any) -> bool:
    try:
        parse_nanoseconds(value if isinstance(value, str) else "")
    except ValueError:
        return False
    return True


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except (QuantityError, ValueError):
        return False
    return True


def _shown(value: Any, key: str) -> str:
    if key.startswith("staticPodURLHeader"):
        return "<masked>"  # may carry credentials
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)
