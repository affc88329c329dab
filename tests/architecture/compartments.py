"""The streams of each service: in its docstring, and in its code. Reads source only."""

import ast
import re
from functools import cache

from bus.messages import streams
from bus.messages.streams import STREAMS, Stream
from tests.architecture.checkout import python_files, tree_of

HEADINGS = ("Purpose", "Owns", "Follows", "Answers", "Persists", "On restart")
# Each service may record Kubernetes Events; who follows them follows those of all services.
ALL_EVENTS = "events/*"


def sections(service: str) -> dict[str, str]:
    """Heading -> text of the service package's docstring. A heading begins its line; its text follows after a colon,
    or indented below it."""
    found: dict[str, str] = {}
    heading = ""
    for line in (ast.get_docstring(tree_of(f"services/{service}/__init__.py")) or "").splitlines():
        begun = re.match(rf"({'|'.join(HEADINGS)})(?::|$)(.*)", line)
        if begun:
            heading = begun.group(1)
            found[heading] = begun.group(2) + "\n"
        elif heading:
            found[heading] += line + "\n"
    return found


def named_streams(text: str) -> set[str]:
    """The names of streams in back-quotes, and `beats` however written."""
    known = {stream.name for stream in STREAMS} | {ALL_EVENTS}
    text = text.replace("`events/<service>`", f"`{ALL_EVENTS}`")
    named = {name for name in re.findall(r"`([a-z]+(?:[./][a-z*_]+)?)`", text) if name in known}
    return named | ({"beats"} if re.search(r"\bbeats?\b", text) else set())


@cache
def _calls(name: str) -> list[tuple[str, ast.Call]]:
    """The calls of methods in the file, with the method's name."""
    calls = [node for node in ast.walk(tree_of(name)) if isinstance(node, ast.Call)]
    return [(call.func.attr, call) for call in calls if isinstance(call.func, ast.Attribute)]


@cache
def touched_streams(service: str, verb: str) -> frozenset[str]:
    """Names of the streams that the service's code passes to `bus.own` or `bus.follow`."""
    found: set[str] = set()
    for name in python_files("services"):
        if not name.startswith(f"services/{service}/"):
            continue
        for method, call in _calls(name):
            if method == verb:
                found.update(_stream_name(argument, service, verb) for argument in call.args[:1])
            elif method == "on_beat":
                found.update({"beats"} if verb == "follow" else ())
    return frozenset(found - {""})


def _stream_name(argument: ast.expr, service: str, verb: str) -> str:
    if isinstance(argument, ast.Call):  # events_of(...)
        inner = argument.args[0]
        if verb == "follow" and not isinstance(inner, ast.Constant):
            return ALL_EVENTS
        return f"events/{inner.value if isinstance(inner, ast.Constant) and isinstance(inner.value, str) else service}"
    constant = getattr(argument, "id", "") or getattr(argument, "attr", "")
    stream = getattr(streams, constant, None)
    return stream.name if isinstance(stream, Stream) else ""
