"""Decides which handler a request gets, or which refusal, by the kubelet's two layers of routing (server.md 1.2, 5).

The outer layer (Go's ServeMux) redirects and answers unknown paths before authentication; the inner one (go-restful)
refuses methods and sub-paths after it. Knows nothing of who asks.
"""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from html import escape

from msgspec import Struct, field

from services.server.core.go_text import redirect_location

PAGE_NOT_FOUND = "404: Page Not Found"
METHOD_NOT_ALLOWED = "405: Method Not Allowed"
DEBUG_DISABLED = "Debug endpoints are disabled."


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
    CHECKPOINT = "checkpoint"
    LOGS = "logs"
    PPROF = "debug/pprof"
    DEBUG_FLAGS = "debug/flags/v"
    METRICS = "metrics"
    METRICS_PROBES = "metrics/probes"
    METRICS_CADVISOR = "metrics/cadvisor"
    METRICS_RESOURCE = "metrics/resource"
    STATS_SUMMARY = "stats/summary"
    METRICS_SLIS = "metrics/slis"
    STATUSZ = "statusz"
    FLAGZ = "flagz"
    EXPLAIN = "bulkhead/explain"
    NODE_PAGE = "bulkhead"


# Requests to a pod that last as long as their client likes; the first parameter is the pod's namespace.
MAX_STREAMS = 4096  # such requests to the main listener; authorized connections without one stay for others
POD_STREAMS = frozenset({Endpoint.CONTAINER_LOGS, Endpoint.EXEC, Endpoint.ATTACH, Endpoint.PORT_FORWARD, Endpoint.RUN})
RESET = ("reset",)  # the parameters of DELETE /metrics/slis


class Rule(Struct, frozen=True):
    """One registered path. `methods` () = Go's ServeMux has it, alone and for every method; else go-restful has it with
    what is below it, and `segments` are the numbers of path segments below it that a handler takes (() = any; the
    handler gets them as one text). `tree`: the ServeMux has the path with a slash at its end and redirects to it.
    `json`: a client that does not accept JSON gets 406."""

    endpoint: Endpoint
    path: str
    methods: tuple[str, ...] = ()
    segments: tuple[int, ...] = (0,)
    tree: str = ""
    json: bool = False


_GET, _BOTH, _POST = ("GET",), ("GET", "POST"), ("POST",)

# On the main and the read-only listener. /healthz is apart: it depends on the names of the checks.
PUBLIC_RULES = (
    Rule(Endpoint.PODS, "/pods", _GET, json=True),
    Rule(Endpoint.STATS_SUMMARY, "/stats/summary", _BOTH, tree="/stats", json=True),
    Rule(Endpoint.METRICS, "/metrics"),
    Rule(Endpoint.METRICS_CADVISOR, "/metrics/cadvisor"),
    Rule(Endpoint.METRICS_PROBES, "/metrics/probes"),
    Rule(Endpoint.METRICS_RESOURCE, "/metrics/resource"),
    Rule(Endpoint.METRICS_SLIS, "/metrics/slis"),
)
# On the main listener, with debugging handlers.
DEBUG_RULES = (
    Rule(Endpoint.CONTAINER_LOGS, "/containerLogs", _GET, (3,)),
    Rule(Endpoint.EXEC, "/exec", _BOTH, (3, 4)),
    Rule(Endpoint.ATTACH, "/attach", _BOTH, (3, 4)),
    Rule(Endpoint.PORT_FORWARD, "/portForward", _BOTH, (2, 3)),
    Rule(Endpoint.RUN, "/run", _POST, (3, 4)),
    Rule(Endpoint.RUNNING_PODS, "/runningpods", _GET, tree="/runningpods", json=True),
    Rule(Endpoint.CONFIGZ, "/configz"),
    Rule(Endpoint.LOGS, "/logs", _GET, (), tree="/logs"),
    Rule(Endpoint.PPROF, "/debug/pprof", _GET, (), tree="/debug/pprof"),
    Rule(Endpoint.DEBUG_FLAGS, "/debug/flags/v"),
    Rule(Endpoint.CHECKPOINT, "/checkpoint", _POST, (3,), tree="/checkpoint"),
    Rule(Endpoint.STATUSZ, "/statusz", _GET),
    Rule(Endpoint.FLAGZ, "/flagz", _GET),
    Rule(Endpoint.EXPLAIN, "/bulkhead/explain", _GET, (0, 1, 2)),
    Rule(Endpoint.NODE_PAGE, "/bulkhead", _GET, (0, 1), tree="/bulkhead"),
)
GATED = frozenset({Endpoint.CHECKPOINT, Endpoint.STATUSZ, Endpoint.FLAGZ})  # unknown paths while their gates are off
# Texts of 405 where a key switches the endpoint off.
DISABLED = {
    Endpoint.LOGS: "logs endpoint is disabled.",
    Endpoint.PPROF: "profiling endpoint is disabled.",
    Endpoint.DEBUG_FLAGS: "flags endpoint is disabled.",
}
# Without debugging handlers every method gets DEBUG_DISABLED below these.
_DEBUG_SUBTREES = (
    "/run/",
    "/exec/",
    "/attach/",
    "/portForward/",
    "/containerLogs/",
    "/runningpods/",
    "/debug/pprof/",
    "/logs/",
    "/bulkhead/",
)


class Route(Struct, frozen=True):
    """A handler is meant; `parameters` are its path segments in order (healthz: the check's name, or none)."""

    endpoint: Endpoint
    parameters: tuple[str, ...] = ()


class Refusal(Struct, frozen=True):
    """An answer without a handler. `open` = given before authentication; `go_error` = as Go's http.Error forms it."""

    status: int
    body: str
    open: bool = False
    go_error: bool = False
    headers: dict[str, str] = field(default_factory=dict)


class ServedEndpoints(Struct, frozen=True):
    """What one listener serves: `debugging` = the debug handlers are on; `checks` = names under /healthz/."""

    debugging: bool
    checks: Collection[str]
    only: Collection[Endpoint] = ()  # nothing but these and /healthz; () = as the other fields
    pods: bool = True  # off on the health listener, which serves /healthz alone
    refusals: bool = True  # answer the debug paths with DEBUG_DISABLED when debugging is off
    resets: bool = False  # DELETE /metrics/slis resets it; not where no credentials are needed
    gated: Collection[Endpoint] = ()  # those of GATED whose gates are on
    disabled: Collection[Endpoint] = ()  # those of DISABLED that a key switches off


def resolve(method: str, path: str, query: str, accept: str, served: ServedEndpoints) -> Route | Refusal:
    """Return the route or refusal for a request; `path` is decoded, `query` raw, `accept` the header ("" = absent)."""
    cleaned = clean_path(path)
    if cleaned != path:
        return _redirect(method, cleaned, query)
    if path == "/healthz":
        return Route(Endpoint.HEALTHZ)
    if path.startswith("/healthz/") and path[len("/healthz/") :] in served.checks:
        return Route(Endpoint.HEALTHZ, (path[len("/healthz/") :],))
    if served.resets and method == "DELETE" and path == f"/{Endpoint.METRICS_SLIS}":
        return Route(Endpoint.METRICS_SLIS, RESET)
    for rule in _rules(served):
        if (found := _by_rule(rule, method, path, query, accept, served)) is not None:
            return found
    if served.refusals and not served.debugging:
        for subtree in _DEBUG_SUBTREES:
            if path == subtree[:-1]:
                return _redirect(method, subtree, query)
            if path.startswith(subtree):
                return Refusal(405, DEBUG_DISABLED, go_error=True)
    return Refusal(404, "404 page not found", open=True, go_error=True)


def _rules(served: ServedEndpoints) -> tuple[Rule, ...]:
    if not served.pods:
        return ()
    if served.only:
        return tuple(rule for rule in DEBUG_RULES if rule.endpoint in served.only)
    return (*PUBLIC_RULES, *DEBUG_RULES) if served.debugging else PUBLIC_RULES


def _by_rule(
    rule: Rule, method: str, path: str, query: str, accept: str, served: ServedEndpoints
) -> Route | Refusal | None:
    """Return what the rule makes of a path; None where it is not the rule's."""
    if rule.endpoint in GATED and rule.endpoint not in served.gated:
        return None
    if rule.tree and path == rule.tree:
        return _redirect(method, f"{rule.tree}/", query)
    if not (path == rule.path if not rule.methods else _under(path, rule.tree or rule.path)):
        return None
    if rule.endpoint in served.disabled:
        return Refusal(405, DISABLED[rule.endpoint], go_error=True)
    if not rule.methods:
        return Route(rule.endpoint)
    below = path[len(rule.path) :] if _under(path, rule.path) else None
    return _restful(method, below, rule, accept)


def handler_paths(served: ServedEndpoints) -> list[str]:
    """Return the paths that /statusz names: those without parameters or sub-paths that this listener serves."""
    exact = {rule.path for rule in (*PUBLIC_RULES, *DEBUG_RULES) if not rule.methods}
    pages = {f"/{endpoint}" for endpoint in served.gated if endpoint is not Endpoint.CHECKPOINT}
    return sorted({"/healthz", *exact, *pages})


def _restful(method: str, below: str | None, rule: Rule, accept: str) -> Route | Refusal:
    """Return what go-restful answers. `below`: the path below the rule's; None = a path beside it in the same tree."""
    rest = (below or "").strip("/")
    parameters = tuple(rest.split("/")) if rest else ()
    if below is None or (rule.segments and len(parameters) not in rule.segments):
        return Refusal(404, PAGE_NOT_FOUND)
    if method not in rule.methods:
        return Refusal(405, METHOD_NOT_ALLOWED, headers={"Allow": ", ".join(rule.methods)})
    if rule.json and not _accepts_json(accept):
        return Refusal(406, "406: Not Acceptable\n\nAvailable representations: application/json")
    return Route(rule.endpoint, parameters if rule.segments else (below.removeprefix("/"),))


def _accepts_json(accept: str) -> bool:
    kinds = {part.partition(";")[0].strip() for part in accept.split(",")} if accept else {"*/*"}
    return not kinds.isdisjoint({"*/*", "application/json"})


def _under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + "/")


def _redirect(method: str, path: str, query: str) -> Refusal:
    location = redirect_location(path, query)
    body = f'<a href="{escape(location)}">Moved Permanently</a>.\n\n' if method == "GET" else ""
    headers = {"Location": location, "Content-Type": "text/html; charset=utf-8"}
    return Refusal(301, body, open=True, headers=headers)


def is_loopback_host(host: str) -> bool:
    """Return whether a Host header names this machine as 127.0.0.1 or localhost, with or without a port."""
    return re.fullmatch(r"(127\.0\.0\.1|localhost)(:\d+)?", host, re.ASCII) is not None


def is_of_another_site(headers: Mapping[str, str]) -> bool:
    """Return whether a browser requests it for a page of another origin, by what browsers send and pages cannot change:
    the origin where a browser is too old for Sec-Fetch-Site. A link that the user follows is none.
    """
    site, mode, target = (headers.get(f"Sec-Fetch-{name}", "") for name in ("Site", "Mode", "Dest"))
    if not site and (origin := headers.get("Origin", "")):
        return origin.partition("://")[2].lower() != headers.get("Host", "").lower()
    return site in ("cross-site", "same-site") and (mode, target) != ("navigate", "document")


def clean_path(path: str) -> str:
    """Return the path as Go's ServeMux cleans it: without `.`, `..` and empty segments, but with a trailing slash."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    cleaned = "/" + "/".join(kept)
    return cleaned + "/" if path.endswith("/") and cleaned != "/" else cleaned
