"""Collects the texts that the product can print from its source: string constants with `…` for each value put into
them."""

import ast
import re
from functools import cache

from tests.architecture.checkout import nodes_of, python_files

_PLACES = re.compile(r"%(?:\([^)]*\))?[-#0 +]*[\d*]*(?:\.[\d*]+)?[a-zA-Z]|\{[^{}]*\}")


@cache
def texts() -> frozenset[str]:
    """Return every text of bus, services and shared that has a letter, docstrings left out."""
    found: set[str] = set()
    for name in python_files("bus", "services", "shared"):
        nodes = nodes_of(name)
        documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                parts = (str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
                found.add("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
                found.add(_PLACES.sub("…", node.value))
    return frozenset(found)


@cache
def _fixed_parts() -> tuple[tuple[str, list[str]], ...]:
    """Return of each text the longest fixed part, and all; texts of less than four letters are left out."""
    long = (text for text in texts() if len(re.findall(r"[a-zA-Z]", text)) > 3 and len(text) < 1000)
    return tuple((max(parts, key=len), parts) for parts in (text.split("…") for text in long))


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Return the text as a pattern whose groups are its fixed parts."""
    return re.compile(".*?".join(f"({re.escape(part)})" for part in text.split("…")), re.DOTALL)


def unknown_words(message: str) -> list[str]:
    """Return the words of a message, of four letters or more, that come from none of the product's texts. Each must be
    in a fixed part of a text whose other fixed parts are in the message as well, in their order."""
    known = [False] * len(message)
    for longest, parts in _fixed_parts():
        # Most texts are not in the message at all: only what may be is worth a pattern.
        if longest not in message or not all(part in message for part in parts):
            continue
        if match := _pattern("…".join(parts)).search(message):
            for begin, end in match.regs[1:]:
                known[begin:end] = [True] * (end - begin)
    return [word[0] for word in re.finditer(r"[a-zA-Z]{4,}", message) if not all(known[word.start() : word.end()])]
