"""Every endpoint over real HTTP: allowed, denied, anonymous, a wrong method, a bad parameter; status and body."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bus.messages.streams import SERVICES
from services.server.adapters import system_log_files
from services.server.core.access.authorization import Attributes
from services.server.core.access.reviews import ReviewError
from services.server.core.routes import Endpoint
from shared.cri.interface import ExecResult
from shared.story.files import directory_of
from tests.service.server.main_listener import TOKEN, MainListener, allow, main_listener
from tests.service.server.running import configuration
from tests.service.server.test_usage import UsageNode

NOT_FOUND, UNKNOWN, WRONG_METHOD = "404: Page Not Found", "404 page not found\n", "405: Method Not Allowed"
JSON, TEXT, HTML = "application/json", "text/plain; charset=utf-8", "text/html; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
CONFIGURATION = '"kind":"KubeletConfiguration"'
NODE = '"nodeName": "node-1"'


class Case(NamedTuple):
    """One endpoint: the request that succeeds, a part of the body of its answer, its type and status; the sub-resources
    that are asked for; and a method that is refused ("" = none is) with those allowed."""

    endpoint: Endpoint
    path: str
    part: str = ""
    kind: str = TEXT
    status: int = 200
    method: str = "GET"
    subresources: str = "proxy"
    wrong: str = "POST"
    allowed: str = "GET"


EITHER = "GET, POST"
PAGE: dict[str, Any] = {"kind": PROMETHEUS, "subresources": "metrics", "wrong": ""}
STREAM: dict[str, Any] = {
    "part": "Upgrade request required",
    "status": 500,
    "method": "POST",
    "wrong": "PUT",
    "allowed": EITHER,
}
CASES = (
    Case(Endpoint.HEALTHZ, "/healthz", "ok", subresources="healthz proxy", wrong=""),
    Case(Endpoint.PODS, "/pods", '"kind":"PodList"', JSON, subresources="pods proxy"),
    Case(Endpoint.RUNNING_PODS, "/runningpods/", '"kind":"PodList"', JSON, subresources="pods proxy", wrong="PUT"),
    Case(Endpoint.CONFIGZ, "/configz", CONFIGURATION, JSON, subresources="configz proxy", wrong=""),
    Case(Endpoint.CONTAINER_LOGS, "/containerLogs/default/web/main"),
    Case(Endpoint.EXEC, "/exec/default/web/main?output=1&command=a", **STREAM),
    Case(Endpoint.ATTACH, "/attach/default/web/main?output=1", **{**STREAM, "wrong": "DELETE"}),
    Case(Endpoint.PORT_FORWARD, "/portForward/default/web", **STREAM),
    Case(Endpoint.RUN, "/run/default/web/main?cmd=ls", "of ls", JSON, method="POST", wrong="GET", allowed="POST"),
    Case(
        Endpoint.CHECKPOINT,
        "/checkpoint/default/web/main",
        "/checkpoints/checkpoint-web_default-main-",
        JSON,
        method="POST",
        subresources="checkpoint",
        wrong="GET",
        allowed="POST",
    ),
    Case(Endpoint.LOGS, "/logs/", '<a href="syslog">', HTML, subresources="log"),
    Case(Endpoint.PPROF, "/debug/pprof/goroutine?process=server", "== server =="),
    Case(Endpoint.METRICS, "/metrics", "kubelet_node_name", **PAGE),
    Case(Endpoint.METRICS_PROBES, "/metrics/probes", **PAGE),
    Case(Endpoint.METRICS_CADVISOR, "/metrics/cadvisor", "container_cpu_usage", **PAGE),
    Case(Endpoint.METRICS_RESOURCE, "/metrics/resource", "node_cpu_usage", **PAGE),
    Case(Endpoint.METRICS_SLIS, "/metrics/slis", **PAGE),
    Case(Endpoint.STATS_SUMMARY, "/stats/summary", NODE, JSON, subresources="stats", wrong="PUT", allowed=EITHER),
    Case(Endpoint.STATUSZ, "/statusz", "kubelet statusz", subresources="statusz"),
    Case(Endpoint.FLAGZ, "/flagz", "kubelet flagz", subresources="configz"),
    Case(Endpoint.EXPLAIN, "/bulkhead/explain/default/web", "(uid-1, from api)"),
    Case(Endpoint.NODE_PAGE, "/bulkhead/", "<title>", HTML),
)
# Bad requests with status and body of their answers; those to logs and streams are in test_container_logs and
# test_streams.
MOVED = '<a href="/containerLogs/default/web/x">Moved Permanently</a>.\n\n'
BAD = (
    ("/healthz/none", 404, UNKNOWN),
    ("/healthz/ping?x=%zz", 200, "ok"),
    ("/pods/x", 404, NOT_FOUND),
    ("/pods/a/b", 404, NOT_FOUND),
    ("/runningpods/x", 404, NOT_FOUND),
    ("/configz/x", 404, UNKNOWN),
    ("/containerLogs/default/web/main?tailLines=-1", 422, '{"message": "Invalid request."}'),
    ("/containerLogs/default/web/main%2F..%2Fx", 301, MOVED),
    ("/containerLogs/default/web/a%2Fb", 404, NOT_FOUND),
    ("/exec/default/web", 404, NOT_FOUND),
    ("/attach/default/web/main", 400, "you must specify at least 1 of stdin, stdout, stderr"),
    ("/run/default/web/none?cmd=ls", 500, 'container not found ("none")'),
    ("/checkpoint/default/web/main?timeout=x", 404, "cannot parse value of timeout parameter"),
    ("/checkpoint/default/none/main", 404, "pod does not exist"),
    ("/logs/none", 404, UNKNOWN),
    ("/logs/?query=%20", 400, 'query: Invalid value: [" "]: query cannot be empty\n'),
    ("/logs/?tailLines=1", 406, "query: Required value: cannot be empty with options\n"),
    ("/debug/pprof/heap", 404, "Unknown profile\n"),
    ("/debug/pprof/profile?seconds=301", 400, "profile duration exceeds 300 s\n"),
    ("/debug/pprof/profile?process=x", 400, f'unknown value "x": it is one of {", ".join(SERVICES)}\n'),
    ("/metrics/none", 404, UNKNOWN),
    ("/stats/none", 404, NOT_FOUND),
    ("/stats/summary?only_cpu_and_memory=%zz", 200, NODE),
    ("/statusz/x", 404, NOT_FOUND),
    ("/flagz/x", 404, NOT_FOUND),
    ("/bulkhead/none", 404, NOT_FOUND),
    ("/bulkhead/page.css/x", 404, NOT_FOUND),
)
VERBS = {"GET": "get", "POST": "create", "PUT": "update", "DELETE": "delete"}


async def deny(_question: Attributes, _address: str) -> bool:
    return False


async def undecidable(_question: Attributes, _address: str) -> bool:
    raise ReviewError("no answer")


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stories = directory_of(str(tmp_path / "root"))
    stories.mkdir(parents=True)
    (stories / "uid-1.jsonl").write_text(
        '{"what":"pod","uid":"uid-1","name":"web","namespace":"default","source":"api"}\n'
    )
    (tmp_path / "varlog").mkdir()
    (tmp_path / "varlog" / "syslog").write_text("line\n")
    monkeypatch.setattr(system_log_files, "SYSTEM_LOGS", tmp_path / "varlog")


async def run(_container: str, command: Sequence[str], _timeout: int) -> ExecResult:
    return ExecResult(exit_code=0, stdout=f"of {command[0]}".encode())


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MainListener]:
    config = configuration(tmp_path, enable_system_log_query=True)
    async with main_listener(config, allow, UsageNode()) as server:
        monkeypatch.setattr(server.running.node.cri, "exec_sync", run)
        await server.running.node.run_pod()
        yield server


def test_the_table_has_every_endpoint() -> None:
    assert {case.endpoint for case in CASES} == set(Endpoint) - {Endpoint.DEBUG_FLAGS}  # PUT, in test_debug_endpoints


async def test_every_endpoint_has_a_handler(server: MainListener) -> None:
    assert set(server.running.service.handlers) == set(Endpoint)


@pytest.mark.long
async def test_allowed(server: MainListener, subtests: pytest.Subtests) -> None:
    for case in CASES:
        with subtests.test(case.endpoint):
            status, body, headers = await server.request(case.method, case.path, Authorization=f"Bearer {TOKEN}")
            assert (status, headers["Content-Type"]) == (case.status, case.kind)
            assert case.part in body
            if case.kind == JSON and case.endpoint is not Endpoint.RUN:
                json.loads(body)


@pytest.mark.long
async def test_a_wrong_method(server: MainListener, subtests: pytest.Subtests) -> None:
    for case in CASES:
        with subtests.test(case.endpoint):
            status, body, headers = await server.request(case.wrong or "POST", case.path)
            if case.wrong:
                assert (status, body, headers["Allow"]) == (405, WRONG_METHOD, case.allowed)
            else:
                assert status == 200


async def test_a_bad_parameter(server: MainListener, subtests: pytest.Subtests) -> None:
    for path, status, body in BAD:
        with subtests.test(path):
            method = "POST" if path.startswith(("/run", "/checkpoint")) else "GET"
            found, text, _ = await server.request(method, path)
            assert found == status
            assert body in text if status == 200 else text == body


@pytest.mark.long
async def test_denied_and_unauthenticated(tmp_path: Path, subtests: pytest.Subtests) -> None:
    text = "Forbidden (user={}, verb={}, resource=nodes, subresource(s)=[{}])\n"
    async with main_listener(configuration(tmp_path), deny) as server:
        for case in CASES:
            with subtests.test(case.endpoint):
                request, asked = (case.method, case.path), (VERBS[case.method], case.subresources)
                answer = await server.request(*request, Authorization=f"Bearer {TOKEN}")
                assert answer[:2] == (403, text.format("jane", *asked))
                assert (await server.request(*request))[:2] == (403, text.format("system:anonymous", *asked))
                bad = await server.request(*request, Authorization="Bearer wrong")
                assert bad[:2] == (401, "Unauthorized")


async def test_undecidable_and_without_anonymous_users(tmp_path: Path, subtests: pytest.Subtests) -> None:
    async with main_listener(configuration(tmp_path), undecidable, anonymous=False) as server:
        for case in CASES:
            with subtests.test(case.endpoint):
                status, body, headers = await server.request(case.method, case.path)
                assert (status, body, "WWW-Authenticate" in headers) == (401, "Unauthorized", False)
                verb, subresource = VERBS[case.method], case.subresources.split()[0]
                failed = f"Authorization error (user=jane, verb={verb}, resource=nodes, subresource={subresource})"
                answer = await server.request(case.method, case.path, Authorization=f"Bearer {TOKEN}")
                assert answer[:2] == (500, failed)


async def test_on_the_read_only_port(server: MainListener, subtests: pytest.Subtests) -> None:
    for case in CASES:
        with subtests.test(case.endpoint):
            running = server.running
            path = case.path if "?" in case.path else f"{case.path}?x=1"
            status, body = await running.get(running.read_only + path, case.method)
            if case.endpoint in (Endpoint.CONFIGZ, Endpoint.CHECKPOINT, Endpoint.STATUSZ, Endpoint.FLAGZ):
                assert (status, body) == (404, UNKNOWN)
            elif case.path.startswith(("/healthz", "/pods", "/metrics", "/stats")):
                assert status == 200
            else:
                assert (status, body) == (405, "Debug endpoints are disabled.\n")


async def test_streams_over_a_websocket_are_counted_by_kind(server: MainListener) -> None:
    for path in ("/exec/default/web/main", "/attach/default/web/main", "/portForward/default/web"):
        await server.request("GET", path, Connection="Upgrade", Upgrade="websocket")
        await server.request("GET", path, Connection="Upgrade", Upgrade="SPDY/3.1")
    _, page, _ = await server.request("GET", "/metrics")
    for kind in ("exec", "attach", "portforward"):
        assert f'kubelet_websocket_streaming_requests_total{{subresource="{kind}"}} 1\n' in page
