"""Which handler a request means, or which refusal, by the kubelet's own two layers of routing (server.md 1.2, 5).

The outer layer (Go's ServeMux) redirects and answers unknown paths before authentication; the inner one (go-restful)
refuses methods and sub-paths after it. Knows nothing of who asks.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from urllib.parse import quote

PAGE_NOT_FOUND = "404: Page Not Found"
METHOD_NOT_ALLOWED = "405: Method Not Allowed"
DEBUG_DISABLED = "Debug endpoints are disabled."

_IN_PATH = "/:@!$&'()*+,;=~"  # characters Go leaves as they are in the Location of a redirect
_IN_QUERY = _IN_PATH + "?%[]"

# With debugging handlers these are served or unknown; without them every method gets DEBUG_DISABLED.
_DEBUG_SUBTREES = (
    "/run/",
    "/exec/",
    "/attach/",
    "/portForward/",
    "/containerLogs/",
    "/runningpods/",
    "/debug/pprof/",
    "/logs/",
)


class Endpoint(StrEnum):
    """What is served."""

    HEALTHZ = "healthz"
    PODS = "pods"
    RUNNING_PODS = "runningpods"
    CONFIGZ = "configz"
    CONTAINER_LOGS = "containerLogs"
    EXEC = "exec"
    ATTACH = "attach"
    PORT_FORWARD = "portForward"
    RUN = "run"
    METRICS = "metrics"
    METRICS_PROBES = "metrics/probes"
    METRICS_CADVISOR = "metrics/cadvisor"
    METRICS_RESOURCE = "metrics/resource"
    STATS_SUMMARY = "stats/summary"
    METRICS_SLIS = "metrics/slis"
    STATUSZ = "statusz"
    FLAGZ = "flagz"


_METRICS = {
    f"/{endpoint}": endpoint
    for endpoint in (
        Endpoint.METRICS,
        Endpoint.METRICS_CADVISOR,
        Endpoint.METRICS_PROBES,
        Endpoint.METRICS_RESOURCE,
        Endpoint.METRICS_SLIS,
    )
}
RESET = ("reset",)  # the parameters of DELETE /metrics/slis

# prefix, endpoint, path segments without and with the pod's UID, methods
_STREAMS: tuple[tuple[str, Endpoint, tuple[int, ...], tuple[str, ...]], ...] = (
    ("/exec", Endpoint.EXEC, (3, 4), ("GET", "POST")),
    ("/attach", Endpoint.ATTACH, (3, 4), ("GET", "POST")),
    ("/portForward", Endpoint.PORT_FORWARD, (2, 3), ("GET", "POST")),
    ("/run", Endpoint.RUN, (3, 4), ("POST",)),
)


@dataclass(frozen=True)
class Route:
    """A handler is meant; `parameters` are its path segments in order (healthz: the check's name, or none)."""

    endpoint: Endpoint
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """An answer without a handler. `open` = given before authentication; `go_error` = as Go's http.Error forms it."""

    status: int
    body: str
    open: bool = False
    go_error: bool = False
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Served:
    """What one listener serves: `debugging` = the debug handlers are on; `checks` = names under /healthz/."""

    debugging: bool
    checks: Collection[str]
    pods: bool = True  # off on the health listener, which serves /healthz alone
    refusals: bool = True  # answer the debug paths with DEBUG_DISABLED when debugging is off
    resets: bool = False  # DELETE /metrics/slis resets it; not where no credentials are needed
    zpages: Collection[Endpoint] = ()  # STATUSZ and FLAGZ, where their gates are on


def resolve(method: str, path: str, query: str, accept: str, served: Served) -> Route | Refusal:
    """The route or refusal for a request; `path` is decoded, `query` raw, `accept` the header ("" = absent)."""
    cleaned = clean_path(path)
    if cleaned != path:
        return _redirect(method, cleaned, query)
    if path == "/healthz":
        return Route(Endpoint.HEALTHZ)
    if path.startswith("/healthz/") and path[len("/healthz/") :] in served.checks:
        return Route(Endpoint.HEALTHZ, (path[len("/healthz/") :],))
    if served.pods and _under(path, "/pods"):
        return _restful(method, path, "/pods", Endpoint.PODS, (0,), accept, json=True)
    if served.pods and path == "/stats":
        return _redirect(method, "/stats/", query)
    if served.pods and path.startswith("/stats/"):
        prefix = "/stats/summary" if _under(path, "/stats/summary") else "/stats"
        segments = (0,) if prefix == "/stats/summary" else ()
        methods = ("GET", "POST")
        return _restful(method, path, prefix, Endpoint.STATS_SUMMARY, segments, accept, methods=methods, json=True)
    if served.resets and method == "DELETE" and path == f"/{Endpoint.METRICS_SLIS}":
        return Route(Endpoint.METRICS_SLIS, RESET)
    if served.pods and path in _METRICS:
        return Route(_METRICS[path])
    if served.debugging:
        return _debug_route(method, path, query, accept, served)
    if served.refusals:
        for subtree in _DEBUG_SUBTREES:
            if path == subtree[:-1]:
                return _redirect(method, subtree, query)
            if path.startswith(subtree):
                return Refusal(405, DEBUG_DISABLED, go_error=True)
    return _unknown()


def _debug_route(method: str, path: str, query: str, accept: str, served: Served) -> Route | Refusal:
    if _under(path, "/containerLogs"):
        return _restful(method, path, "/containerLogs", Endpoint.CONTAINER_LOGS, (3,), accept)
    for prefix, endpoint, segments, methods in _STREAMS:
        if _under(path, prefix):
            return _restful(method, path, prefix, endpoint, segments, accept, methods=methods)
    if path == "/runningpods":
        return _redirect(method, "/runningpods/", query)
    if path.startswith("/runningpods/"):
        return _restful(method, path, "/runningpods", Endpoint.RUNNING_PODS, (0,), accept, json=True)
    if path == "/configz":
        return Route(Endpoint.CONFIGZ)
    for endpoint in served.zpages:
        if _under(path, f"/{endpoint}"):
            return _restful(method, path, f"/{endpoint}", endpoint, (0,), accept)
    return _unknown()


def handler_paths(served: Served) -> list[str]:
    """Return the paths that /statusz names: those without parameters or sub-paths that this listener serves."""
    served_paths = {"/healthz", "/configz", *_METRICS, *(f"/{endpoint}" for endpoint in served.zpages)}
    return sorted(served_paths)


def _restful(
    method: str,
    path: str,
    prefix: str,
    endpoint: Endpoint,
    segments: tuple[int, ...],
    accept: str,
    *,
    methods: tuple[str, ...] = ("GET",),
    json: bool = False,
) -> Route | Refusal:
    rest = path[len(prefix) :].strip("/")
    parameters = tuple(rest.split("/")) if rest else ()
    if len(parameters) not in segments:
        return Refusal(404, PAGE_NOT_FOUND)
    if method not in methods:
        return Refusal(405, METHOD_NOT_ALLOWED, headers={"Allow": ", ".join(methods)})
    if json and not _accepts_json(accept):
        return Refusal(406, "406: Not Acceptable\n\nAvailable representations: application/json")
    return Route(endpoint, parameters)


def _accepts_json(accept: str) -> bool:
    kinds = {part.partition(";")[0].strip() for part in accept.split(",")} if accept else {"*/*"}
    return not kinds.isdisjoint({"*/*", "application/json"})


def _under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + "/")


def _unknown() -> Refusal:
    return Refusal(404, "404 page not found", open=True, go_error=True)


def _redirect(method: str, path: str, query: str) -> Refusal:
    location = quote(path, safe=_IN_PATH) + (f"?{quote(query, safe=_IN_QUERY)}" if query else "")
    body = f'<a href="{escape(location)}">Moved Permanently</a>.\n\n' if method == "GET" else ""
    headers = {"Location": location, "Content-Type": "text/html; charset=utf-8"}
    return Refusal(301, body, open=True, headers=headers)


def clean_path(path: str) -> str:
    """Go's ServeMux cleaning: `.`, `..` and empty segments resolved, a trailing slash kept."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    cleaned = "/" + "/".join(kept)
    return cleaned + "/" if path.endswith("/") and cleaned != "/" else cleaned
