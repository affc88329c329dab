"""JSON byte for byte as Go's encoding/json writes it, for texts that are hashed or compared."""

import json
from typing import Any

_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def go_json(value: Any) -> str:
    """Return compact JSON with the keys in the order given and HTML characters escaped; text that is not Unicode
    becomes U+FFFD."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character, escape in _ESCAPED.items():
        text = text.replace(character, escape)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
