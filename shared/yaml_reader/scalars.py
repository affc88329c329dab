"""Decides which value a YAML scalar has, by the rules of the decoder the kubelet uses (YAML 1.1, config.md 3.4).

`yes`, `on` and `y` are true; `0o17` and `017` are 15; times of day and dates are strings. Whole numbers beyond 64 bits
are floating point if they have decimal digits and a float64 can be so large, else strings. Pure.
"""

import math
import re
from typing import Any

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}  # fmt: skip
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MAX_NUMBER_CHARACTERS = 400  # Python's int() takes time with the square of the digits
_TAG = "tag:yaml.org,2002:"


def plain_value(text: str) -> Any:
    """Return the value of a scalar without quotes and tag: None, bool, int, float, or the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if not text or text[0] not in "0123456789+-." or len(text) > _MAX_NUMBER_CHARACTERS:
        return text
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", "", 1))
    digits = text if text.startswith(".") else text.replace("_", "")
    if match := _INTEGER.fullmatch(digits):
        sign, *forms = match.groups()
        base, body = next((b, body) for b, body in zip((16, 2, 8, 10), forms, strict=True) if body is not None)
        if -(2**63) <= (number := int(sign + body, base)) < 2**64:
            return number
    if _FLOAT.fullmatch(digits) and math.isfinite(fraction := float(digits)):
        return fraction
    return text


def tagged_value(tag: str, text: str) -> Any:
    """Return the value of a scalar with an explicit tag; unknown tags leave the text. Raises ValueError where the text
    does not fit the tag, and for binary data.
    """
    name = tag.removeprefix(_TAG)
    if name == "binary":
        raise ValueError("is !!binary, which is not read")
    if name not in ("bool", "int", "float", "null"):
        return text
    value = plain_value(text)
    fits = {
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "null": value is None,
    }
    if not fits[name]:
        raise ValueError(f"is not of the type in its tag: {name}")
    return float(value) if name == "float" and value is not None else value


def key_text(value: Any) -> str | None:
    """Return the name that a scalar key becomes in JSON; None when it cannot be one."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return value if isinstance(value, str) else None
