"""Which handler or refusal a request gets."""

import pytest

from services.server.core.routes import Endpoint, Refusal, Route, ServedEndpoints, clean_path, handler_paths, resolve

MAIN = ServedEndpoints(debugging=True, checks=("ping", "log"))
READ_ONLY = ServedEndpoints(debugging=False, checks=("ping",))
HEALTH = ServedEndpoints(debugging=False, checks=("ping",), pods=False, refusals=False)


def get(
    path: str, served: ServedEndpoints = MAIN, method: str = "GET", query: str = "", accept: str = ""
) -> Route | Refusal:
    return resolve(method, path, query, accept, served)


def refused(path: str, served: ServedEndpoints = MAIN, method: str = "GET", accept: str = "") -> Refusal:
    answer = get(path, served, method, accept=accept)
    assert isinstance(answer, Refusal)
    return answer


def test_a_log_request_names_namespace_pod_and_container() -> None:
    assert get("/containerLogs/ns/pod/c") == Route(Endpoint.CONTAINER_LOGS, ("ns", "pod", "c"))


def test_a_path_may_end_with_a_slash() -> None:
    assert get("/pods/") == Route(Endpoint.PODS)
    assert get("/stats/summary/") == Route(Endpoint.STATS_SUMMARY)


@pytest.mark.parametrize(
    "path",
    ["/", "/nothing", "/metrics/nothing", "/metrics/", "/execs/ns/p/c", "/healthz/unknown", "/configz/x", "/Pods"],
)
def test_what_is_not_registered_is_refused_before_authentication(path: str) -> None:
    answer = refused(path)
    assert (answer.status, answer.body, answer.open) == (404, "404 page not found", True)


@pytest.mark.parametrize(
    "path",
    [
        "/pods/x",
        "/stats/",
        "/stats/x",
        "/stats/summary/x",
        "/containerLogs",
        "/containerLogs/ns/pod",
        "/containerLogs/a/b/c/d",
    ],
)
def test_a_wrong_path_under_a_registered_prefix_is_refused_after_authentication(path: str) -> None:
    answer = refused(path)
    assert (answer.status, answer.body, answer.open) == (404, "404: Page Not Found", False)


def test_the_answer_to_a_wrong_method_names_the_allowed_one() -> None:
    answer = refused("/containerLogs/ns/pod/c", method="HEAD")
    assert (answer.status, answer.body, answer.headers) == (405, "405: Method Not Allowed", {"Allow": "GET"})


@pytest.mark.parametrize(
    ("method", "path", "endpoint", "parameters"),
    [
        ("GET", "/exec/ns/p/c", Endpoint.EXEC, ("ns", "p", "c")),
        ("POST", "/exec/ns/p/uid/c", Endpoint.EXEC, ("ns", "p", "uid", "c")),
        ("POST", "/attach/ns/p/c", Endpoint.ATTACH, ("ns", "p", "c")),
        ("GET", "/portForward/ns/p", Endpoint.PORT_FORWARD, ("ns", "p")),
        ("POST", "/portForward/ns/p/uid", Endpoint.PORT_FORWARD, ("ns", "p", "uid")),
        ("POST", "/run/ns/p/uid/c", Endpoint.RUN, ("ns", "p", "uid", "c")),
    ],
)
def test_streams_are_found_with_and_without_the_pods_uid(
    method: str, path: str, endpoint: Endpoint, parameters: tuple[str, ...]
) -> None:
    assert get(path, method=method) == Route(endpoint, parameters)


def test_streams_refuse_other_methods_and_depths() -> None:
    assert refused("/exec/ns/p/c", method="PUT").headers == {"Allow": "GET, POST"}
    assert refused("/run/ns/p/c", method="GET").headers == {"Allow": "POST"}
    assert refused("/exec/ns/p").status == refused("/portForward/a/b/c/d").status == 404
    assert refused("/exec/ns/p/c", READ_ONLY).body == "Debug endpoints are disabled."


def test_health_takes_any_method() -> None:
    assert get("/healthz", method="POST") == Route(Endpoint.HEALTHZ)
    assert get("/healthz/log") == Route(Endpoint.HEALTHZ, ("log",))


def test_a_list_that_the_client_does_not_accept_is_406() -> None:
    assert refused("/pods", accept="text/html").status == 406
    assert get("/pods", accept="text/html, application/json;q=0.9") == Route(Endpoint.PODS)
    assert get("/containerLogs/ns/pod/c", accept="text/html") == Route(Endpoint.CONTAINER_LOGS, ("ns", "pod", "c"))


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("//pods", "/pods?a=b"),
        ("/x/../pods", "/pods?a=b"),
        ("/runningpods", "/runningpods/?a=b"),
        ("/stats", "/stats/?a=b"),
        ("/a\r\nb/./c", "/a%0D%0Ab/c?a=b"),
        ("", "/?a=b"),
    ],
)
def test_unclean_paths_are_redirected_before_authentication(path: str, location: str) -> None:
    answer = get(path, query="a=b")
    assert isinstance(answer, Refusal)
    assert (answer.status, answer.headers["Location"], answer.open) == (301, location, True)


def test_cleaning_keeps_a_trailing_slash() -> None:
    assert clean_path("/a//b/../c/") == "/a/c/"
    assert clean_path("/..") == "/"


@pytest.mark.parametrize("path", ["/run/x", "/exec/a/b/c", "/containerLogs/ns/pod/c", "/logs/", "/debug/pprof/heap"])
def test_without_debug_handlers_their_paths_are_disabled_for_every_method(path: str) -> None:
    for method in ("GET", "POST"):
        answer = refused(path, READ_ONLY, method)
        assert (answer.status, answer.body, answer.open) == (405, "Debug endpoints are disabled.", False)


def test_without_debug_handlers_the_others_are_unknown() -> None:
    assert refused("/configz", READ_ONLY).status == 404
    assert refused("/exec", READ_ONLY).headers["Location"] == "/exec/"
    assert get("/pods", READ_ONLY) == Route(Endpoint.PODS)


def test_the_health_listener_serves_health_alone() -> None:
    assert get("/healthz/ping", HEALTH) == Route(Endpoint.HEALTHZ, ("ping",))
    assert refused("/pods", HEALTH).status == 404
    assert refused("/run/x", HEALTH).status == 404


def test_slis_are_reset_only_where_credentials_are_needed() -> None:
    main = ServedEndpoints(debugging=True, checks=(), resets=True)
    assert get("/metrics/slis", main, "DELETE") == Route(Endpoint.METRICS_SLIS, ("reset",))
    assert get("/metrics/slis", READ_ONLY, "DELETE") == Route(Endpoint.METRICS_SLIS)
    assert get("/metrics/slis", main, "POST") == Route(Endpoint.METRICS_SLIS)


def test_zpages_are_served_where_their_gates_are_on() -> None:
    main = ServedEndpoints(debugging=True, checks=(), gated=(Endpoint.FLAGZ,))
    assert get("/flagz", main) == Route(Endpoint.FLAGZ)
    assert refused("/flagz", main, method="POST").status == 405
    assert refused("/flagz/x", main).status == 404
    assert refused("/statusz", main).open
    assert handler_paths(main) == ["/configz", "/debug/flags/v", "/flagz", "/healthz", *metrics_paths()]


def test_logs_take_any_depth_and_keep_the_slash_at_the_end() -> None:
    assert refused("/logs").headers["Location"] == "/logs/"
    assert get("/logs/") == Route(Endpoint.LOGS, ("",))
    assert get("/logs/a/b/") == Route(Endpoint.LOGS, ("a/b/",))
    assert refused("/logs/a", method="POST").headers == {"Allow": "GET"}
    off = ServedEndpoints(debugging=True, checks=(), disabled=(Endpoint.LOGS,))
    for method in ("GET", "PUT"):
        answer = refused("/logs/a", off, method)
        assert (answer.status, answer.body, answer.open) == (405, "logs endpoint is disabled.", False)


def test_a_checkpoint_is_served_where_its_gate_is_on() -> None:
    on = ServedEndpoints(debugging=True, checks=(), gated=(Endpoint.CHECKPOINT,))
    assert get("/checkpoint/ns/p/c", on, "POST") == Route(Endpoint.CHECKPOINT, ("ns", "p", "c"))
    assert refused("/checkpoint/ns/p/c", on).headers == {"Allow": "POST"}
    assert refused("/checkpoint", on).headers["Location"] == "/checkpoint/"
    assert refused("/checkpoint/ns/p/c", method="POST").open
    assert "/checkpoint" not in handler_paths(on)


def metrics_paths() -> list[str]:
    return sorted(f"/{endpoint}" for endpoint in Endpoint if endpoint.startswith("metrics"))
