"""Writes the values of flags back: as Go's flags print them, and a bad one in a message. Pure.

Knows no grammar of the command line.
"""

import math
from collections.abc import Mapping
from typing import Any

from shared.config.fields import FlagKind
from shared.log.klog import go_quote

_MAX_SHOWN_CHARACTERS = 200  # of a bad value
MASKED = "<masked>"


def shown(text: str) -> str:
    """Return a bad value for a message: quoted, and cut where it is long."""
    return go_quote(text if len(text) <= _MAX_SHOWN_CHARACTERS else text[:_MAX_SHOWN_CHARACTERS] + "…")


def value_text(kind: FlagKind, value: Any) -> str:
    """Return a flag's value, as the parser gave it, as Go's flags print it: lists `[a,b]`, maps sorted."""
    match kind:
        case FlagKind.BOOL:
            return "true" if value else "false"
        case FlagKind.STRINGS:
            return f"[{','.join(_csv_field(item) for item in value)}]"
        case FlagKind.MAP | FlagKind.LABELS | FlagKind.PAIR:
            return ",".join(f"{name}={text}" for name, text in sorted(value.items()))
        case FlagKind.THRESHOLDS:
            return ",".join(f"{name}<{text}" for name, text in sorted(value.items()))
        case FlagKind.GATES:
            return ",".join(f"{name}={'true' if on else 'false'}" for name, on in sorted(value.items()))
        case FlagKind.MULTIMAP:
            return ",".join(sorted(f"{name}:{text}" for name, texts in value.items() for text in texts))
        case FlagKind.VMODULE:
            return ",".join(f"{item['filePattern']}={item['verbosity']}" for item in value)
        case FlagKind.TAINTS:
            return ",".join(_taint_text(taint) for taint in value)
        case FlagKind.RESERVED_MEMORY:
            return ";".join(
                f"{item['numaNode']}:" + ",".join(f"{name}={text}" for name, text in sorted(item["limits"].items()))
                for item in value
            )
        case FlagKind.FLOAT64:
            return f"{value:g}" if math.isfinite(value) else {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
        case _:
            return str(value)


def _csv_field(text: str) -> str:
    if not text or any(char in text for char in ',"\r\n') or text[0] == " ":
        return '"' + text.replace('"', '""') + '"' if text else text
    return text


def _taint_text(taint: Mapping[str, str]) -> str:
    value = taint.get("value", "")
    return f"{taint['key']}{'=' if value else ''}{value}:{taint['effect']}"
