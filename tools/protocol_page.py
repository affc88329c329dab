"""Writes what bus/PROTOCOL.md and ARCHITECTURE.md say about streams and fields: `python -m tools.protocol_page`.

The types and meanings of fields come from bus/messages and from their comments: behind the field, or in the lines above
it. The lists of streams come from bus/messages/streams.py, their followers from the code of the services. A section of
PROTOCOL.md begins with what is written here; the prose, the example and the lines about loss below it are by hand.
"""

import ast
import importlib
import inspect
import io
import pkgutil
import re
import textwrap
import tokenize
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

import bus.messages
from bus.messages.streams import SERVICES, STREAMS, Stream
from shared.model import runtime

CHECKOUT = Path(__file__).resolve().parent.parent
PROTOCOL = CHECKOUT / "bus" / "PROTOCOL.md"
ARCHITECTURE = CHECKOUT / "ARCHITECTURE.md"
ALL_EVENTS = "events/<service>"
_TYPES = {
    "Any": ("value", "values"),
    "Raw": ("value", "values"),
    "bool": ("boolean", "booleans"),
    "float": ("number", "numbers"),
    "int": ("integer", "integers"),
    "str": ("string", "strings"),
}
# Marks the lines of a section that this module writes.
_GENERATED = re.compile(
    r"^(?:Part of .*|- \*\*(?:Stream|Owner|Key|After a crash of the owner)\*\*.*|\|.*)\n", re.MULTILINE
)
_STREAMS_HEAD = "| stream (key) | owner | content | source after a crash | followers |\n|---|---|---|---|---|\n"


@cache
def messages() -> dict[str, type[Any]]:
    """Return every struct that a message is or contains, by name."""
    names = [f"bus.messages.{module.name}" for module in pkgutil.iter_modules(bus.messages.__path__)]
    return {
        name: value
        for module in [*map(importlib.import_module, names), runtime]
        for name, value in vars(module).items()
        if isinstance(value, type)
        and (issubclass(value, Struct) or is_dataclass(value))
        and value.__module__ == module.__name__
        and value is not Stream
    }


def field_rows(message: type[Any]) -> list[tuple[str, str, str]]:
    """Return name, type and meaning of each field. Raises ValueError for a field without a meaning."""
    source = textwrap.dedent(inspect.getsource(message))
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    lines = source.splitlines()
    declared = ast.parse(source).body[0]
    assert isinstance(declared, ast.ClassDef)
    rows = []
    for field in declared.body:
        if not isinstance(field, ast.AnnAssign):
            continue
        words = [comments[field.lineno]] if field.lineno in comments else []
        number = field.lineno - 1
        while lines[number - 1].lstrip().startswith("#"):
            words.insert(0, comments[number])
            number -= 1
        name = ast.unparse(field.target)
        if not words:
            raise ValueError(f"{message.__name__}.{name}: say in a comment what it means")
        rows.append((name, _type_text(field.annotation), _meaning(" ".join(words))))
    return rows


def _meaning(comment: str) -> str:
    text = comment.replace("->", "→").replace("|", "\\|")
    text = re.sub(r"\bFalse(?= =)", "false", re.sub(r"\bNone\b", "null", text))
    return re.sub(r"`([A-Z]\w+)`", lambda word: _link(word[1]) or word[0], text)


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})" if name in messages() else ""


def _type_text(annotation: ast.expr, plural: bool = False) -> str:
    """Return the JSON type of an annotation."""
    match annotation:
        case ast.BinOp(left=left, right=ast.Constant(value=None)):
            return f"{_type_text(left)} or null"
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[_, value])):
            values = _type_text(value, plural=True)
            return ("objects" if plural else "object") + ("" if values == "values" else f" of {values}")
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[item, ast.Constant()])):
            return f"{'lists' if plural else 'list'} of {_type_text(item, plural=True)}"
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=items)):
            return f"[{', '.join(map(_type_text, items))}]"
        case ast.BinOp(left=left, right=right):
            return f"{_type_text(left, plural)} or {_type_text(right, plural)}"
    name = ast.unparse(annotation).rpartition(".")[2]
    if name in _TYPES:
        return _TYPES[name][plural]
    return _link(name) or (("object" if name == "ConfigSource" else "string") + "s" * plural)


@cache
def parts() -> dict[str, list[str]]:
    """Return by message the messages that have a field of its type. A message that is sent alone is absent."""
    found: dict[str, list[str]] = {}
    for name, message in messages().items():
        for _, kind, _ in field_rows(message):
            for part in re.findall(r"\[(\w+)\]\(#", kind):
                if name not in found.setdefault(part, []):
                    found[part].append(name)
    return found


def _head_lines(name: str) -> list[str]:
    """Return the lines about what the message is part of, or the stream whose values it is."""
    lines = [f"Part of {', '.join(map(_link, parts()[name]))}."] if name in parts() else []
    stream = next((stream for stream in STREAMS if stream.value is messages()[name]), None)
    if stream is not None:
        each = stream.name.startswith("events/")
        lines += [
            f"- **Stream**: `{ALL_EVENTS if each else stream.name}`",
            f"- **Owner**: {'each service its own' if each else stream.owner}",
            f"- **Key**: {stream.key}",
            f"- **After a crash of the owner**: {stream.recovery}",
        ]
    return lines


def _field_table(name: str) -> list[str]:
    rows = [f"| `{field}` | {kind} | {meaning} |" for field, kind, meaning in field_rows(messages()[name])]
    return ["| field | type | meaning |", "|---|---|---|", *rows] if rows else []


def _section(name: str, text: str) -> str:
    """Return the section of a message: its head, the text before the example, the table, and the rest."""
    by_hand = _GENERATED.sub("", text)
    before, after = re.split(r"^(?=```json|## )|\Z", by_hand, maxsplit=1, flags=re.MULTILINE)
    blocks = ("\n".join(_head_lines(name)), before, "\n".join(_field_table(name)), after)
    return "\n\n".join(re.sub(r"\n{3,}", "\n\n", block).strip("\n") for block in blocks if block.strip())


def protocol_page() -> str:
    """Return PROTOCOL.md with what this module writes replaced. Raise ValueError for a message without a section."""
    head, *rest = re.split(r"^### (.+)$", PROTOCOL.read_text(encoding="utf-8"), flags=re.MULTILINE)
    names = rest[::2]
    if wrong := set(names) ^ messages().keys():
        raise ValueError(f"{PROTOCOL}: a section without a message, or a message without one: {sorted(wrong)}")
    sections = (_section(name, text) for name, text in zip(names, rest[1::2], strict=True))
    return head + "\n\n".join(f"### {name}\n\n{text}" for name, text in zip(names, sections, strict=True)) + "\n"


def architecture_page() -> str:
    """Return ARCHITECTURE.md with the table of streams replaced."""
    head, _, tail = ARCHITECTURE.read_text(encoding="utf-8").partition(_STREAMS_HEAD)
    rows = []
    for stream in STREAMS:
        name = ALL_EVENTS if stream.name.startswith("events/") else stream.name
        if name != stream.name and stream != STREAMS[-1]:
            continue
        owner = stream.owner if name == stream.name else "each service"
        followers = ", ".join(sorted(service for service in SERVICES if name in uses("follow")[service])) or "none"
        rows.append(f"| `{name}` ({stream.key}) | {owner} | {stream.content} | {stream.recovery} | {followers} |\n")
    return head + _STREAMS_HEAD + "".join(rows) + re.sub(r"\A(?:\|.*\n)+", "", tail)


@cache
def uses(verb: str) -> dict[str, frozenset[str]]:
    """Return by service the names of the streams that its code passes to `bus.own` or `bus.follow` (`verb`)."""
    return {
        service: frozenset(
            _stream_name(node.args[0])
            for path in (CHECKOUT / "services" / service).rglob("*.py")
            if f".{verb}" in (text := path.read_text(encoding="utf-8"))  # most files need not be parsed
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Call) and node.args
            if isinstance(node.func, ast.Attribute) and node.func.attr == verb
        )
        for service in SERVICES
    }


def _stream_name(argument: ast.expr) -> str:
    if isinstance(argument, ast.Call):
        return ALL_EVENTS if ast.unparse(argument.func).endswith("events_of") else ""
    stream = getattr(bus.messages.streams, ast.unparse(argument).rpartition(".")[2], None)
    return stream.name if isinstance(stream, Stream) else ""


def main() -> None:
    """Write both pages."""
    PROTOCOL.write_text(protocol_page(), encoding="utf-8")
    ARCHITECTURE.write_text(architecture_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
