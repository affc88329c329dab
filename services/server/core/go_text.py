"""Forms and parses texts and numbers as Go does, where clients of the API see the difference. Knows nothing of HTTP
routes."""

import re
from urllib.parse import quote as escaped
from urllib.parse import unquote_plus

_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_IN_PATH = "/:@!$&'()*+,;=~"  # characters Go leaves as they are in the Location of a redirect
_IN_QUERY = _IN_PATH + "?%[]"
_ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def quote(text: str) -> str:
    """Return `text` as Go's %q prints it."""
    return f'"{text.translate(_Quoted())}"'


class _Quoted(dict[int, str]):
    """Maps a code point to what Go prints for it; each one is computed once."""

    def __missing__(self, code: int) -> str:
        self[code] = quoted = _quoted(chr(code))
        return quoted


def _quoted(character: str) -> str:
    code = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"  # a byte that is no UTF-8
    if character.isprintable():
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def parse_int64(text: str) -> int:
    """Return the number in `text`, as Go's strconv.ParseInt(text, 10, 64) reads it. Raises ValueError."""
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"parsing {quote(text)}: invalid syntax")
    number = int(text) if len(text) < 40 else 1 << 64
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"parsing {quote(text)}: value out of range")
    return number


def redirect_location(path: str, query: str) -> str:
    """Return the Location for a decoded path and a raw query; what HTTP does not permit in a header is escaped."""
    in_utf8 = path.encode("utf-8", "surrogatepass")
    return escaped(in_utf8, safe=_IN_PATH) + (f"?{escaped(query, safe=_IN_QUERY)}" if query else "")


def parse_query(raw: str) -> dict[str, list[str]]:
    """Return the values of a query by key, in order, as Go's URL.Query() does: pairs that do not decode, or have a
    semicolon, are dropped."""
    values: dict[str, list[str]] = {}
    for pair in raw.split("&"):
        if not pair or ";" in pair or _BROKEN_ESCAPE.search(pair):
            continue
        key, _, value = pair.partition("=")
        values.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return values
