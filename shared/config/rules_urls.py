"""Decides whether Go's URL parser takes a text, for the values the kubelet hands to it. Pure."""

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*", re.ASCII)
_HOST = re.compile(r"""[-\w.~!$&'()*+,;=:\[\]<>"%]*|[^\x00-\x7f]*""", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})", re.ASCII)


def scheme_of(url: str) -> str | None:
    """Return the scheme, in lower case, of a text `scheme://host:port/path`; None when Go's parser refuses it."""
    scheme, found, rest = url.partition("://")
    if not found or not _SCHEME.fullmatch(scheme) or _CONTROL.search(url):
        return None
    before_fragment = rest.partition("#")[0]
    authority, path = re.match(r"([^/?]*)([^?]*)", before_fragment).groups()  # type: ignore[union-attr]
    host = authority.rpartition("@")[2]
    return scheme.lower() if _is_host(host) and not _BAD_ESCAPE.search(path) else None


def _is_host(host: str) -> bool:
    if not all(_HOST.fullmatch(character) for character in host):
        return False
    if host.startswith("["):
        address, closed, port = host.rpartition("]")
        return bool(closed) and "%" not in address.replace("%25", "") and re.fullmatch(r"(:[0-9]*)?", port) is not None
    _, colon, port = host.rpartition(":")
    return "%" not in host and (not colon or re.fullmatch(r"[0-9]*", port) is not None)
