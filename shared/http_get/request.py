"""The GET of an httpGet probe or hook: URL, headers, targets of redirects. Pure text (pods.md 8.4, 10.3)."""

import re
from urllib.parse import quote, urljoin, urlsplit

from msgspec import Struct

from shared.model.frozen_copy import replace

MAX_REDIRECTS = 10  # requests in all, as Go counts
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PATH_SAFE, _QUERY_SAFE = "/%:@!$&'()*+,;=-._~", "/%:@!$&'()*+,;=-._~?"
_PORTS = {"http": 80, "https": 443}


class BadRequestError(ValueError):
    """The spec requests something that cannot be sent; the text names it."""


class HttpTarget(Struct, frozen=True):
    """One GET request; `host` without brackets, `path` with its query."""

    scheme: str
    host: str
    port: int
    path: str
    headers: tuple[tuple[str, str], ...]  # Host first, ready to be sent
    explicit_port: bool = True
    prior_http2: bool = False  # HTTP/2 without TLS, which the server is known to speak

    @property
    def address(self) -> str:
        """Return `host:port` as Go writes it."""
        return f"{_bracketed(self.host)}:{self.port}"

    @property
    def url(self) -> str:
        """Return the URL for messages."""
        return f"{self.scheme}://{self.address if self.explicit_port else _bracketed(self.host)}{self.path}"

    def request(self) -> bytes:
        """Return the bytes of the HTTP/1.1 request."""
        lines = [f"GET {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in self.headers)]
        return "\r\n".join((*lines, "Connection: close", "", "")).encode("utf-8", "replace")

    def fields(self) -> list[tuple[str, str]]:
        """Return the header fields of the same request in HTTP/2."""
        host, *others = self.headers
        pseudo = [(":method", "GET"), (":scheme", self.scheme), (":path", self.path), (":authority", host[1])]
        return [*pseudo, *((name.lower(), value) for name, value in others)]


def target_of(
    scheme: str,
    host: str,
    port: int,
    path: str,
    headers: tuple[tuple[str, str], ...],
    user_agent: str,
    *,
    prior_http2: bool = False,
) -> HttpTarget:
    """Return the first request; `user_agent` is used where `headers` has none. Raises BadRequestError."""
    if scheme not in _PORTS:
        raise BadRequestError(f'unsupported protocol scheme "{scheme}"')
    sent = _headers(headers, f"{_bracketed(host)}:{port}", user_agent)
    return HttpTarget(scheme, host, port, _clean_path(path), sent, prior_http2=prior_http2)


def redirected(target: HttpTarget, status: int, location: str) -> HttpTarget | None:
    """Return the target of a redirect (`status` 301, 302, 303, 307, 308); None without one, or to another host, which
    is not followed."""
    if status not in _REDIRECTS or not location:
        return None
    try:
        parts = urlsplit(urljoin(target.url, location))
        host, scheme, port = parts.hostname or "", parts.scheme, parts.port
        relative = not urlsplit(location).scheme
    except ValueError:
        return None
    if host != target.host.lower() or scheme not in _PORTS:
        return None
    path = _clean_path(parts.path + (f"?{parts.query}" if parts.query else ""))
    there = replace(target, scheme=scheme, port=port or _PORTS[scheme], path=path, explicit_port=port is not None)
    host_header = there.address if there.explicit_port else _bracketed(target.host)
    headers = [(n, v) for n, v in target.headers if n not in ("Host", "Referer")]
    first = next(v for n, v in target.headers if n == "Host") if relative else host_header
    if not (target.scheme == "https" and scheme == "http"):
        headers.append(("Referer", target.url))
    return replace(there, headers=(("Host", first), *headers))


def _headers(given: tuple[tuple[str, str], ...], address: str, user_agent: str) -> tuple[tuple[str, str], ...]:
    host, headers = address, []
    for name, value in given:
        canonical = "-".join(part[:1].upper() + part[1:].lower() for part in name.split("-"))
        if not _TOKEN.fullmatch(name):
            raise BadRequestError(f'net/http: invalid header field name "{_CONTROL.sub("?", name)}"')
        if _CONTROL.search(value):
            raise BadRequestError(f'net/http: invalid header field value for "{canonical}"')
        if canonical == "Host":
            host = value or host
        elif canonical not in ("Connection", "Content-Length", "Transfer-Encoding"):
            headers.append((canonical, value.strip()))
    names = {name for name, _ in headers}
    defaults = (("User-Agent", user_agent), ("Accept", "*/*"))
    headers = [pair for pair in defaults if pair[0] not in names] + headers
    # An empty value in the spec removes the default.
    kept = ((name, value) for name, value in headers if value or name not in ("Accept", "User-Agent"))
    return (("Host", host), *kept)


def _clean_path(path: str) -> str:
    """Return path and query, escaped for a request line; a fragment is not sent."""
    path, _, query = path.partition("#")[0].partition("?")
    path = quote(path if path.startswith("/") else f"/{path}", safe=_PATH_SAFE)
    return f"{path}?{quote(query, safe=_QUERY_SAFE)}" if query else path


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
