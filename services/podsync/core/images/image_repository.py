"""Finds the registry and repository of an image name, and matches such names with patterns (pods.md 7.4).
Pure: works on text alone.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote

DEFAULT_REGISTRY = "docker.io"
LEGACY_REGISTRY = "index.docker.io"
_MAX_PLACE_CHARACTERS = 2048  # the names of registries and images are shorter

_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:]*?)(?::([0-9]*))?")
_BRACKET = re.compile(r"(\^?)((?:[^\\\[\]-](?:-[^\\\[\]-])?)+)\]")
_RANGE = re.compile(r"(.)(?:-(.))?", re.DOTALL)
_NOT_IN_A_HOST = frozenset(' "<>^`{}|\\')


def repository(image: str) -> str:
    """Return the image's full name without tag and digest: `busybox:1` is `docker.io/library/busybox`."""
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


def is_named(image: str, names: Iterable[str]) -> bool:
    """Return whether one of these names, such as those that the runtime has for an image, is this one, in full or
    short."""
    return _full_name(image) in map(_full_name, names)


def _full_name(image: str) -> str:
    name, at, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return repository(image) + (f"@{digest}" if at else f":{tag or 'latest'}")


def hosts_directories(registry: str) -> list[str]:
    """Return the directories in which containerd looks for the `hosts.toml` of this registry; the first that exists
    counts."""
    host, colon, port = registry.rpartition(":")
    return [*([f"{host}_{port}_"] if colon else []), registry, "_default"]


def registry_of(name: str) -> str:
    """Return host and port of a name as `repository` returns it."""
    return name.partition("/")[0]


class CredentialLocation(NamedTuple):
    """Has a place that credentials are for: host with its port, path with its leading slash or ""."""

    host: str
    path: str


def location(entry: str) -> CredentialLocation | None:
    """Return the location that a key of a docker config, or a pattern, means; None for one that is no location. `/v1/`
    and `/v2/` are ignored."""
    if len(entry) > _MAX_PLACE_CHARACTERS:
        return None
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
    return CredentialLocation(host, "" if path == "/" else path)


def matches(pattern: str, name: str) -> bool:
    """Return whether the pattern (`*.registry.example:8080/team`) covers the name: the same port, as many parts of the
    host, each matched by its own glob, and a path that begins the same way."""
    if len(pattern) > _MAX_PLACE_CHARACTERS:
        return False
    wanted, actual = _split(pattern), _split(name)
    if wanted is None or actual is None:
        return False
    globs, wanted_port, wanted_path = wanted
    parts, port, path = actual
    if wanted_port != port or not path.startswith(wanted_path) or len(globs) != len(parts):
        return False
    return all(_glob_matches(glob, part) for glob, part in zip(globs, parts, strict=True))


def is_of_default_registry(name: str) -> bool:
    """Return whether credentials for the default registry, stored under its old name, are for the image."""
    head, slash, _ = name.partition("/")
    if not head:
        return False
    return not slash or head in (DEFAULT_REGISTRY, LEGACY_REGISTRY) or not ("." in head or ":" in head)


def _split(text: str) -> tuple[list[str], str, str] | None:
    """Return the parts of the host, the port and the path; None for a text without a valid host."""
    authority, slash, path = text.partition("/")
    match = _AUTHORITY.fullmatch(authority)
    return (match[1].split("."), match[2] or "", slash + path) if match else None


def _glob_matches(glob: str, part: str) -> bool:
    """Return whether Go's glob (`*`, `?`, `[a-z]`, `[^a-z]`) covers the text; a malformed glob covers none. The bits of
    `reached` are the positions in the glob that the text may have come to. They are all followed at once, so that the
    time is linear in the text and in the glob, with any number of stars."""
    if "*" not in glob and "?" not in glob and "[" not in glob:
        return glob == part
    length = 0  # single characters of the glob so far
    stars = 0  # a bit for each position with a star before it
    anything = 0  # a bit for each position with `?`
    literals: dict[str, int] = {}
    brackets: list[tuple[int, bool, str]] = []  # bit, whether negated, the text in the brackets
    at = 0
    while at < len(glob):
        bit, sign = 1 << length, glob[at]
        at += 1
        length += sign != "*"
        if sign == "*":
            stars |= bit
        elif sign == "?":
            anything |= bit
        elif sign == "[":
            bracket = _BRACKET.match(glob, at)
            if bracket is None:
                return False
            brackets.append((bit, bool(bracket[1]), bracket[2]))
            at = bracket.end()
        else:
            literals[sign] = literals.get(sign, 0) | bit
        if length > len(part):
            return False
    signs = sorted(set(part))
    moves = {sign: literals.get(sign, 0) | anything for sign in signs}
    for bit, negated, text in brackets:
        inside = _signs_in(signs, text)
        for sign in signs:
            if (sign in inside) is not negated:
                moves[sign] |= bit
    reached = 1
    for sign in part:
        reached = (reached & moves[sign]) << 1 | reached & stars
    return bool(reached >> length & 1)


def _signs_in(signs: list[str], text: str) -> set[str]:
    """Return those of the sorted characters that brackets with `a-cx` cover; a range from high to low covers none."""
    inside: set[str] = set()
    for low, high in _RANGE.findall(text):
        inside.update(signs[bisect_left(signs, low) : bisect_right(signs, high or low)])
    return inside
