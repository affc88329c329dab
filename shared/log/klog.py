"""klog's line formats, pure: one record as a text line or a JSON object (config.md 5.13).

`structured` makes a message with fields: a `str` that is the text body, and carries the fields for the JSON form.
No message and no value can forge a record: in text each further line is indented, in JSON there is
none. Knows no clock, no process and nothing of the `logging` module.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

_SHORT = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_SHORT |= {'"': '\\"', "\\": "\\\\"}
_AS_GO = orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS
# What is no plain JSON speaks for itself by `str`, which may hide what `repr` and the attributes would show.
_BY_STR = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS
_HEADER_KEYS = frozenset({"ts", "caller", "msg", "v", "logger"})


class Json(NamedTuple):
    """A value that is shown as JSON, already encoded."""

    text: str


Value = str | int | float | bool | None | Json


class Structured(str):
    """The text body of a message with fields; log it like any other message, without arguments."""

    __slots__ = ("fields", "message")
    message: str
    fields: tuple[tuple[str, Value], ...]


def structured(message: str, /, **values: object) -> Structured:
    """`"message" err="…" key="text" key2=123 key3={…}`; an `err` of None is left out. Never raises."""
    fields = [(key, _reduced(value)) for key, value in values.items()]
    if "err" in values:
        fields.sort(key=lambda field: field[0] != "err")
        if values["err"] is None:
            del fields[0]
    made = Structured(go_quote(message) + "".join([_field(key, value) for key, value in fields]))
    made.message, made.fields = message, tuple(fields)
    return made


def text_header(letter: str, stamp: str, process: int, file: str, line: int) -> str:
    """`Lmmdd hh:mm:ss.uuuuuu PPPPPPP service/file.py:line] `; `stamp` is `mmdd hh:mm:ss.uuuuuu`, local time."""
    return f"{letter}{stamp} {process:>7} {file}:{line}] "


def text_body(message: str) -> str:
    """Return the rest of the line: as it is, further lines indented by a tab, control characters as their escapes."""
    if message.isprintable():
        return message
    shown = "".join([_escaped(c) if c < " " or "\x7f" <= c <= "\x9f" else c for c in message])
    return shown if isinstance(message, Structured) else shown.replace("\n", "\n\t")


def json_line(
    created: float, caller: str, message: str, verbosity: int | None, err: str = "", stack: str = "", logger: str = ""
) -> str:
    """Return one JSON object without line break. `created` in seconds since the epoch; `verbosity` None: an error."""
    found: dict[str, Any] = {"ts": round(created * 1000, 3), "caller": caller}
    found["msg"] = message.message if isinstance(message, Structured) else message
    if verbosity is not None:
        found["v"] = verbosity
    if err:
        found["err"] = err
    if logger:
        found["logger"] = logger
    if isinstance(message, Structured):
        for key, value in message.fields:
            shown = orjson.Fragment(value.text) if isinstance(value, Json) else value
            found[f"{key}_" if key in _HEADER_KEYS else key] = shown
    if stack:
        found["stacktrace"] = stack
    return _encoded(found)


def go_quote(text: str) -> str:
    """Return the text as Go's %q prints it; bytes that were no UTF-8 (surrogate escapes) become \\xNN."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join([_quoted(character) for character in text])}"'


def shortened_json(line: str, limit: int) -> bytes:
    """Return the same record in at most `limit` bytes (at least 1024): the header, as much of `msg` and `err` as fits,
    and `truncated`, the length it had.
    """
    fields = orjson.loads(line)
    kept = {key: fields[key] for key in ("ts", "caller", "msg", "v", "err", "logger") if key in fields}
    kept["truncated"] = len(line)
    room = limit
    while True:
        room //= 2
        for key in ("msg", "err"):
            if key in kept:
                kept[key] = str(kept[key])[:room]
        kept["caller"] = kept["caller"][-200:]
        if len(made := orjson.dumps(kept)) <= limit or not room:
            return made


def folded_text(line: bytes, limit: int) -> list[bytes]:
    """Return a text record, final line break included, in pieces of whole lines of at most `limit` bytes (at least
    16)."""
    pieces, piece = [], b""
    for one in [part + b"\n" for part in line.removesuffix(b"\n").split(b"\n")]:
        while len(one) > limit:
            cut = limit - 1
            while cut > limit - 5 and one[cut] & 0xC0 == 0x80:  # not inside a character
                cut -= 1
            pieces += [piece] * bool(piece) + [one[:cut] + b"\n"]
            piece, one = b"", b"\t" + one[cut:]
        if len(piece) + len(one) > limit:
            pieces.append(piece)
            piece = b""
        piece += one
    return [*pieces, piece] if piece else pieces


def _reduced(value: object) -> Value:
    """Return the text of a value now, for it may change before the line is written."""
    if value is None or type(value) in (str, bool):
        return value  # type: ignore[return-value]
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else Json(str(value))
    if type(value) is float:
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        try:
            return Json(orjson.dumps(value, default=_plain, option=_AS_GO | _BY_STR).decode())
        except (TypeError, ValueError, RecursionError):
            return _spoken(value)
    if isinstance(value, BaseException):
        return _spoken(value) or type(value).__name__
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    return _spoken(value)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    return _spoken(value)


def _spoken(value: object) -> str:
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__} cannot be shown: {type(error).__name__}>"


def _field(key: str, value: Value) -> str:
    if not key.isidentifier():
        key = key if key.isprintable() and key and not set(key) & {" ", "=", '"'} else go_quote(key)
    if isinstance(value, str):
        if "\n" in value:
            return f" {key}=<\n\t" + value.removesuffix("\n").replace("\n", "\n\t") + "\n >"
        return f" {key}={go_quote(value)}"
    if isinstance(value, bool):
        return f" {key}=true" if value else f" {key}=false"
    if isinstance(value, Json):
        return f" {key}={value.text}"
    return f" {key}={'null' if value is None else value}"


def _encoded(found: dict[str, Any]) -> str:
    try:
        return orjson.dumps(found).decode()
    except (TypeError, ValueError):  # a string that is no UTF-8
        valid = {_utf8(k): _utf8(v) if isinstance(v, str) else v for k, v in found.items()}
        return orjson.dumps(valid).decode()


def _utf8(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _quoted(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    return character if character.isprintable() else _escaped(character)


def _escaped(character: str) -> str:
    """Return the escape of what a terminal would act on; line break and tab stay."""
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if 0xD800 <= code <= 0xDFFF:
        return "\\ufffd"
    if character in "\n\t":
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
