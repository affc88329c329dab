"""Every route of the router has its authorization and its handler: a new one without them fails here."""

import pytest

from services.server.core.access.authentication import ANONYMOUS
from services.server.core.access.authorization import questions
from services.server.core.metrics.request_metrics import request_labels
from services.server.core.routes import (
    DEBUG_RULES,
    DISABLED,
    GATED,
    PUBLIC_RULES,
    Endpoint,
    Refusal,
    Route,
    Rule,
    ServedEndpoints,
    resolve,
)

RULES = (*PUBLIC_RULES, *DEBUG_RULES)
EVERYTHING = ServedEndpoints(debugging=True, checks=("ping",), resets=True, gated=tuple(GATED))

# The sub-resources of `nodes` that each endpoint needs, tried in this order.
SUBRESOURCES = {
    Endpoint.HEALTHZ: ("healthz", "proxy"),
    Endpoint.PODS: ("pods", "proxy"),
    Endpoint.RUNNING_PODS: ("pods", "proxy"),
    Endpoint.CONFIGZ: ("configz", "proxy"),
    Endpoint.CONTAINER_LOGS: ("proxy",),
    Endpoint.EXEC: ("proxy",),
    Endpoint.ATTACH: ("proxy",),
    Endpoint.PORT_FORWARD: ("proxy",),
    Endpoint.RUN: ("proxy",),
    Endpoint.CHECKPOINT: ("checkpoint",),
    Endpoint.LOGS: ("log",),
    Endpoint.PPROF: ("proxy",),
    Endpoint.DEBUG_FLAGS: ("proxy",),
    Endpoint.METRICS: ("metrics",),
    Endpoint.METRICS_PROBES: ("metrics",),
    Endpoint.METRICS_CADVISOR: ("metrics",),
    Endpoint.METRICS_RESOURCE: ("metrics",),
    Endpoint.METRICS_SLIS: ("metrics",),
    Endpoint.STATS_SUMMARY: ("stats",),
    Endpoint.STATUSZ: ("statusz",),
    Endpoint.FLAGZ: ("configz",),
    Endpoint.EXPLAIN: ("proxy",),
    Endpoint.NODE_PAGE: ("proxy",),
}


def paths(rule: Rule) -> list[str]:
    """A path for each number of segments that the rule takes."""
    if not rule.methods:
        return [rule.path]
    return [
        rule.path + "".join(f"/s{index}" for index in range(count)) + ("/" if rule.tree and not count else "")
        for count in rule.segments or (0, 1, 5)
    ]


def test_each_endpoint_has_one_rule_and_subresources() -> None:
    endpoints = [rule.endpoint for rule in RULES]
    assert sorted([*endpoints, Endpoint.HEALTHZ]) == sorted(Endpoint)
    assert set(SUBRESOURCES) == set(Endpoint)
    assert set(GATED) | set(DISABLED) <= {rule.endpoint for rule in DEBUG_RULES}


def test_a_route_is_reached_and_authorized_by_its_subresources(subtests: pytest.Subtests) -> None:
    for rule in RULES:
        with subtests.test(rule.endpoint):
            for path in paths(rule):
                for method in rule.methods or ("GET", "POST", "PUT"):
                    found = resolve(method, path, "", "", EVERYTHING)
                    assert isinstance(found, Route) and found.endpoint is rule.endpoint, (method, path)
                    asked = questions(ANONYMOUS, method, path, "node-1")
                    assert tuple(question.subresource for question in asked) == SUBRESOURCES[rule.endpoint]


def test_every_refusal_of_a_routes_path_comes_after_authorization_unless_it_is_unknown(
    subtests: pytest.Subtests,
) -> None:
    for rule in RULES:
        with subtests.test(rule.endpoint):
            off = ServedEndpoints(debugging=True, checks=(), disabled=tuple(DISABLED))
            for served in (EVERYTHING, off, ServedEndpoints(debugging=False, checks=())):
                for path in paths(rule):
                    for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW"):
                        found = resolve(method, path, "", "", served)
                        if isinstance(found, Refusal) and found.open:
                            assert found.status in (301, 404)


def test_a_route_is_counted_under_a_name_of_its_own(subtests: pytest.Subtests) -> None:
    for rule in RULES:
        with subtests.test(rule.endpoint):
            _, bucket, _, _ = request_labels("GET", paths(rule)[0], "readwrite")
            assert bucket != "other" or rule.endpoint is Endpoint.METRICS_SLIS


def test_no_debug_route_is_reached_without_debugging_handlers(subtests: pytest.Subtests) -> None:
    for rule in DEBUG_RULES:
        with subtests.test(rule.endpoint):
            served = ServedEndpoints(debugging=False, checks=(), gated=tuple(GATED))
            for path in paths(rule):
                assert isinstance(resolve("GET", path, "", "", served), Refusal)
                assert isinstance(resolve("POST", path, "", "", served), Refusal)
