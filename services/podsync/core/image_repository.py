"""The registry and repository that an image name stands for, and how such names meet patterns (reference pods.md 7.4).

Pure text; knows neither credentials nor whether anything is there.
"""

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

DEFAULT_REGISTRY = "docker.io"
LEGACY_REGISTRY = "index.docker.io"

_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:]*?)(?::([0-9]*))?")
_NOT_IN_A_HOST = frozenset(' "<>^`{}|\\')


def repository(image: str) -> str:
    """The image's name in full, without tag and digest: `busybox:1` is `docker.io/library/busybox`."""
    name = image.partition("@")[0]
    head, slash, rest = name.partition("/")
    is_registry = bool(slash) and ("." in head or ":" in head or head == "localhost" or head != head.lower())
    registry, path = (head, rest) if is_registry else (DEFAULT_REGISTRY, name)
    folder, slash, last = path.rpartition("/")
    path = folder + slash + last.partition(":")[0]
    if registry in (DEFAULT_REGISTRY, LEGACY_REGISTRY):
        registry = DEFAULT_REGISTRY
        path = path if "/" in path else f"library/{path}"
    return f"{registry}/{path}"


def registry_of(name: str) -> str:
    """Host and port of a name such as `repository` returns."""
    return name.partition("/")[0]


class Location(NamedTuple):
    """A place that credentials are for: host with its port, path with its leading slash or ""."""

    host: str
    path: str


def location(entry: str) -> Location | None:
    """What a key of a docker config, or a pattern, means; None when nobody can tell. `/v1/` and `/v2/` say nothing."""
    rest = entry.removeprefix("https://") if entry.startswith("https://") else entry.removeprefix("http://")
    if any(ord(sign) < 0x20 or sign == "\x7f" for sign in rest):
        return None
    authority, slash, path = rest.partition("#")[0].partition("?")[0].partition("/")
    host = authority.rpartition("@")[2]
    if _AUTHORITY.fullmatch(host) is None or _NOT_IN_A_HOST & set(host):
        return None
    path = unquote(slash + path)
    if path.startswith(("/v1/", "/v2/")):
        path = path[3:]
    return Location(host, "" if path == "/" else path)


def matches(pattern: str, name: str) -> bool:
    """Whether the pattern (`*.registry.example:8080/team`) covers the name: the same port, as many parts of the host,
    each matched by its own glob, and a path that begins the same way."""
    one, other = _split(pattern), _split(name)
    if one is None or other is None or one[1] != other[1] or not other[2].startswith(one[2]):
        return False
    if len(one[0]) != len(other[0]):
        return False
    return all(_glob_matches(glob, part) for glob, part in zip(one[0], other[0], strict=True))


def is_of_default_registry(name: str) -> bool:
    """Whether credentials for the default registry, stored under its old name, are good for the image."""
    head, slash, _ = name.partition("/")
    if not head:
        return False
    return not slash or head in (DEFAULT_REGISTRY, LEGACY_REGISTRY) or not ("." in head or ":" in head)


def _split(text: str) -> tuple[list[str], str, str] | None:
    """Parts of the host, port, path."""
    authority, slash, path = text.partition("/")
    found = _AUTHORITY.fullmatch(authority)
    return (found[1].split("."), found[2] or "", slash + path) if found else None


def _glob_matches(glob: str, part: str) -> bool:
    pattern = _translated(glob)
    return pattern is not None and pattern.fullmatch(part) is not None


@lru_cache(maxsize=256)
def _translated(glob: str) -> re.Pattern[str] | None:
    """Go's glob as a regular expression: `*`, `?`, `[a-z]`, `[^a-z]`; None for one that is not well formed."""
    pattern, rest = "", glob
    while rest:
        sign, rest = rest[0], rest[1:]
        if sign == "[":
            inner, closed, rest = rest.partition("]")
            negated, inner = inner.startswith("^"), inner.removeprefix("^")
            if not closed or not re.fullmatch(r"(?:[^\\\[\]-](?:-[^\\\[\]-])?)+", inner):
                return None
            pattern += f"[{'^' if negated else ''}{re.escape(inner).replace(chr(92) + '-', '-')}]"
        else:
            pattern += {"*": "[^/]*", "?": "[^/]"}.get(sign) or re.escape(sign)
    try:
        return re.compile(pattern)
    except re.error:  # a range that runs backwards
        return None
