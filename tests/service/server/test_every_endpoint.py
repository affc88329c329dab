"""Every endpoint over real HTTP: allowed, denied, anonymous, a wrong method, a bad parameter; status and body."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

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
JSON, TEXT, PROMETHEUS = "application/json", "text/plain; charset=utf-8", "text/plain; version=0.0.4; charset=utf-8"


class Case(NamedTuple):
    """One endpoint: the request that succeeds, its status, type and a part of its body; the sub-resources that are
    asked for; a method that is refused ("" = none is) with those allowed; and bad requests with their answers."""

    endpoint: Endpoint
    method: str
    path: str
    status: int
    kind: str
    part: str
    subresources: str
    wrong: str
    allowed: str
    bad: tuple[tuple[str, int, str], ...] = ()


CASES = (
    Case(
        Endpoint.HEALTHZ,
        "GET",
        "/healthz",
        200,
        TEXT,
        "ok",
        "healthz proxy",
        "",
        "",
        (("/healthz/none", 404, UNKNOWN), ("/healthz/ping?x=%zz", 200, "ok")),
    ),
    Case(
        Endpoint.PODS,
        "GET",
        "/pods",
        200,
        JSON,
        '"kind":"PodList"',
        "pods proxy",
        "POST",
        "GET",
        (("/pods/x", 404, NOT_FOUND), ("/pods/a/b", 404, NOT_FOUND)),
    ),
    Case(
        Endpoint.RUNNING_PODS,
        "GET",
        "/runningpods/",
        200,
        JSON,
        '"kind":"PodList"',
        "pods proxy",
        "PUT",
        "GET",
        (("/runningpods/x", 404, NOT_FOUND),),
    ),
    Case(
        Endpoint.CONFIGZ,
        "GET",
        "/configz",
        200,
        JSON,
        '"kind":"KubeletConfiguration"',
        "configz proxy",
        "",
        "",
        (("/configz/x", 404, UNKNOWN),),
    ),
    Case(
        Endpoint.CONTAINER_LOGS,
        "GET",
        "/containerLogs/default/web/main",
        200,
        TEXT,
        "",
        "proxy",
        "POST",
        "GET",
        (
            ("/containerLogs/default/web/main?tailLines=x", 400, '{"message": "Unable to decode query."}'),
            ("/containerLogs/default/web/main?tailLines=-1", 422, '{"message": "Invalid request."}'),
            (
                "/containerLogs/default/web/main%2F..%2Fx",
                301,
                '<a href="/containerLogs/default/web/x">Moved Permanently</a>.\n\n',
            ),
            ("/containerLogs/default/web/a%2Fb", 404, NOT_FOUND),
            ("/containerLogs/default/none/main", 404, 'pod "none" does not exist'),
            ("/containerLogs/default/web/none", 404, 'container "none" not found in pod "web"'),
        ),
    ),
    Case(
        Endpoint.EXEC,
        "POST",
        "/exec/default/web/main?output=1&command=a",
        500,
        TEXT,
        "Upgrade request required",
        "proxy",
        "PUT",
        "GET, POST",
        (
            ("/exec/default/web/main", 400, "you must specify at least 1 of stdin, stdout, stderr"),
            ("/exec/default/none/main?output=1", 404, "pod does not exist"),
            ("/exec/default/web", 404, NOT_FOUND),
        ),
    ),
    Case(
        Endpoint.ATTACH,
        "POST",
        "/attach/default/web/main?output=1",
        500,
        TEXT,
        "Upgrade request required",
        "proxy",
        "DELETE",
        "GET, POST",
        (
            ("/attach/default/web/main", 400, "you must specify at least 1 of stdin, stdout, stderr"),
            ("/attach/default/web/none?output=1", 500, "container none not found in pod web_default"),
        ),
    ),
    Case(
        Endpoint.PORT_FORWARD,
        "POST",
        "/portForward/default/web",
        500,
        TEXT,
        "Upgrade request required",
        "proxy",
        "PUT",
        "GET, POST",
        (
            ("/portForward/default/none", 404, "pod does not exist"),
            ("/portForward/default/web/other-uid", 404, "pod not found"),
        ),
    ),
    Case(
        Endpoint.RUN,
        "POST",
        "/run/default/web/main?cmd=ls",
        200,
        JSON,
        "of ls",
        "proxy",
        "GET",
        "POST",
        (
            ("/run/default/none/main?cmd=ls", 404, "pod does not exist"),
            ("/run/default/web/none?cmd=ls", 500, 'container not found ("none")'),
        ),
    ),
    Case(
        Endpoint.CHECKPOINT,
        "POST",
        "/checkpoint/default/web/main",
        200,
        JSON,
        "/checkpoints/checkpoint-web_default-main-",
        "checkpoint",
        "GET",
        "POST",
        (
            ("/checkpoint/default/web/main?timeout=x", 404, "cannot parse value of timeout parameter"),
            ("/checkpoint/default/none/main", 404, "pod does not exist"),
        ),
    ),
    Case(
        Endpoint.LOGS,
        "GET",
        "/logs/",
        200,
        "text/html; charset=utf-8",
        '<a href="syslog">',
        "log",
        "POST",
        "GET",
        (
            ("/logs/none", 404, UNKNOWN),
            ("/logs/?query=%20", 400, 'query: Invalid value: [" "]: query cannot be empty\n'),
            ("/logs/?tailLines=1", 406, "query: Required value: cannot be empty with options\n"),
        ),
    ),
    Case(
        Endpoint.PPROF,
        "GET",
        "/debug/pprof/goroutine?process=server",
        200,
        TEXT,
        "== server ==",
        "proxy",
        "POST",
        "GET",
        (
            ("/debug/pprof/heap", 404, "Unknown profile\n"),
            ("/debug/pprof/profile?seconds=301", 400, "profile duration exceeds 300 s\n"),
            ("/debug/pprof/profile?process=x", 400, f'unknown value "x": it is one of {", ".join(SERVICES)}\n'),
        ),
    ),
    Case(
        Endpoint.METRICS,
        "GET",
        "/metrics",
        200,
        PROMETHEUS,
        "kubelet_node_name",
        "metrics",
        "",
        "",
        (("/metrics/none", 404, UNKNOWN),),
    ),
    Case(Endpoint.METRICS_PROBES, "GET", "/metrics/probes", 200, PROMETHEUS, "", "metrics", "", ""),
    Case(
        Endpoint.METRICS_CADVISOR, "GET", "/metrics/cadvisor", 200, PROMETHEUS, "container_cpu_usage", "metrics", "", ""
    ),
    Case(Endpoint.METRICS_RESOURCE, "GET", "/metrics/resource", 200, PROMETHEUS, "node_cpu_usage", "metrics", "", ""),
    Case(Endpoint.METRICS_SLIS, "GET", "/metrics/slis", 200, PROMETHEUS, "", "metrics", "", ""),
    Case(
        Endpoint.STATS_SUMMARY,
        "GET",
        "/stats/summary",
        200,
        JSON,
        '"nodeName": "node-1"',
        "stats",
        "PUT",
        "GET, POST",
        (("/stats/none", 404, NOT_FOUND), ("/stats/summary?only_cpu_and_memory=%zz", 200, '"nodeName": "node-1"')),
    ),
    Case(
        Endpoint.STATUSZ,
        "GET",
        "/statusz",
        200,
        TEXT,
        "kubelet statusz",
        "statusz",
        "POST",
        "GET",
        (("/statusz/x", 404, NOT_FOUND),),
    ),
    Case(
        Endpoint.FLAGZ,
        "GET",
        "/flagz",
        200,
        TEXT,
        "kubelet flagz",
        "configz",
        "POST",
        "GET",
        (("/flagz/x", 404, NOT_FOUND),),
    ),
    Case(
        Endpoint.EXPLAIN, "GET", "/bulkhead/explain/default/web", 200, TEXT, "(uid-1, from api)", "proxy", "POST", "GET"
    ),
    Case(
        Endpoint.NODE_PAGE,
        "GET",
        "/bulkhead/",
        200,
        "text/html; charset=utf-8",
        "<title>",
        "proxy",
        "POST",
        "GET",
        (("/bulkhead/none", 404, NOT_FOUND), ("/bulkhead/page.css/x", 404, NOT_FOUND)),
    ),
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
    for path, status, body in [bad for case in CASES for bad in case.bad]:
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
