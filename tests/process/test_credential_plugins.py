"""Credential plugins as real executables: good ones, slow ones, ones that crash, babble or lie."""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from services.podsync.adapters.images.credential_plugins import MAX_OUTPUT_BYTES, CredentialPlugins
from services.podsync.core.images.keyring import AccountSource
from shared.config.effective import CredentialProvider
from shared.time.clock import SystemClock
from tests.service.podsync.registry_stage import Secrets, pod
from tests.support.waits.deadline import SLOWNESS, WAIT_SECONDS

API = "credentialprovider.kubelet.k8s.io/v1"
IMAGE = "r.example/app"
GOOD = """
answer = {"kind": "CredentialProviderResponse", "apiVersion": request["apiVersion"], "cacheKeyType": "Image"}
answer["auth"] = {"r.example": {"username": "robot", "password": request.get("serviceAccountToken", "") + "hush"}}
print(json.dumps({**answer, **CHANGES}))
"""
PLUGIN = """#!{python} -IS
import json, os, sys, time
request = json.load(sys.stdin)
received = {{"argv": sys.argv[1:], "env": os.environ.get("A"), "path": "PATH" in os.environ, **request}}
with open({log!r}, "a") as log:
    log.write(json.dumps(received) + "\\n")
CHANGES = {changes!r}
{body}
"""


class Bench:
    """A directory of plugins, and the requests that they received."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.cluster = directory, Secrets()
        self.log = directory / "log"

    def write(self, name: str, body: str = GOOD, **changes: Any) -> None:
        """A plugin that logs its request and then does this."""
        path = self.directory / name
        path.write_text(PLUGIN.format(python=sys.executable, log=str(self.log), body=body, changes=changes))
        path.chmod(0o755)

    def plugins(self, *names: str, time_limit: float = 20.0, **fields: Any) -> CredentialPlugins:
        own = {"match_images": ("*.example",), "default_cache_seconds": 60.0, "api_version": API, **fields}
        providers = [CredentialProvider(name=name, **own) for name in names]
        return CredentialPlugins(providers, str(self.directory), SystemClock(), time_limit=time_limit)

    async def ask(self, plugins: CredentialPlugins, image: str = IMAGE, **of_pod: Any) -> list[str]:
        """The passwords that come back."""
        found = await plugins.entries(image, pod(**of_pod), self.cluster)
        return [credential.password for entries in found for credential in entries.config.values()]

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The requests that the plugins received, in order."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_a_plugin_is_run_with_its_arguments_and_environment(bench: Bench) -> None:
    bench.write("p")
    assert await bench.ask(bench.plugins("p", args=("--x", "y z"), env=(("A", "b"),))) == ["hush"]
    (request,) = bench.requests
    assert (request["argv"], request["env"], request["path"]) == (["--x", "y z"], "b", True)
    assert (request["kind"], request["apiVersion"], request["image"]) == ("CredentialProviderRequest", API, IMAGE)


async def test_only_plugins_for_the_image_are_run(bench: Bench) -> None:
    bench.write("p")
    assert await bench.ask(bench.plugins("p"), image="r.other/app") == []
    assert bench.requests == []


async def test_an_answer_is_kept_for_its_scope(bench: Bench) -> None:
    bench.write("p", cacheKeyType="Registry")
    plugins = bench.plugins("p")
    for image in ("r.example/a", "r.example/b", "q.example/a"):
        await bench.ask(plugins, image=image)
    assert [request["image"] for request in bench.requests] == ["r.example/a", "q.example/a"]


async def test_after_a_suspension_of_the_machine_answers_and_tokens_are_requested_again(bench: Bench) -> None:
    bench.write("p", cacheKeyType="Registry")
    plugins = bench.plugins("p")
    await bench.ask(plugins)
    plugins.forget()
    await bench.ask(plugins)
    await bench.ask(plugins)
    assert len(bench.requests) == 2


async def test_an_answer_without_duration_is_requested_each_time(bench: Bench) -> None:
    bench.write("p", cacheDuration="0s")
    plugins = bench.plugins("p")
    assert await bench.ask(plugins) + await bench.ask(plugins) == ["hush", "hush"]
    assert len(bench.requests) == 2


async def test_those_who_ask_the_same_at_the_same_time_share_one_run(bench: Bench) -> None:
    bench.write("p", cacheDuration="0s")
    plugins = bench.plugins("p")
    asked = [bench.ask(plugins) for _ in range(5)] + [bench.ask(plugins, image="r.example/b")]
    assert await asyncio.gather(*asked) == [["hush"]] * 6
    assert len(bench.requests) == 2


async def test_a_run_goes_on_when_one_of_them_gives_up(bench: Bench) -> None:
    bench.write("p")
    plugins = bench.plugins("p")
    first, second = asyncio.create_task(bench.ask(plugins)), asyncio.create_task(bench.ask(plugins))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    assert await second == ["hush"]
    assert len(bench.requests) == 1


HUGE = f"sys.stdout.write('hush' * {MAX_OUTPUT_BYTES})\nsys.stdout.flush()\ntime.sleep(60)"
FORKED = "if os.fork() == 0:\n    time.sleep(60)\nos._exit(0)"


@pytest.mark.parametrize(
    ("body", "changes", "why"),
    [
        ("sys.stderr.write('hush')\nsys.exit(3)", {}, "it ended with exit code 3"),
        ("os.kill(os.getpid(), 9)", {}, "it ended with signal 9"),
        ("print('hush')", {}, "it is not valid JSON"),
        ("", {}, "it is not valid JSON"),
        (GOOD, {"apiVersion": "credentialprovider.kubelet.k8s.io/v1beta1"}, "its apiVersion is not"),
        (GOOD, {"cacheKeyType": "hush"}, "its cacheKeyType is none of"),
        (GOOD, {"auth": ["hush"]}, "its auth is no object"),
        (HUGE, {}, f"it wrote more than {MAX_OUTPUT_BYTES} bytes"),
        (GOOD + "sys.exit(1)", {}, "it ended with exit code 1"),
    ],
)
async def test_a_failed_plugin_is_logged_and_the_answers_of_others_count(
    bench: Bench, caplog: pytest.LogCaptureFixture, body: str, changes: dict[str, Any], why: str
) -> None:
    bench.write("bad", body, **changes)
    bench.write("good")
    assert await bench.ask(bench.plugins("bad", "good")) == ["hush"]
    (record,) = caplog.records
    assert record.getMessage().startswith(f"credential plugin bad is of no help for {IMAGE}: {why}")
    assert "hush" not in caplog.text


@pytest.mark.parametrize("body", ["time.sleep(60)", FORKED], ids=["slow", "leaves a child with its output"])
async def test_a_plugin_that_takes_too_long_is_killed_with_all_it_started(
    bench: Bench, caplog: pytest.LogCaptureFixture, body: str
) -> None:
    bench.write("slow", body)
    began = time.monotonic()
    assert await bench.ask(bench.plugins("slow", time_limit=1.0)) == []
    assert time.monotonic() - began < 50
    assert "it took longer than 1 s" in caplog.text
    mine = str(bench.directory / "slow").encode()

    def alive() -> list[Path]:
        return [path for path in Path("/proc").glob("[0-9]*/cmdline") if _mentions(path, mine)]

    deadline = time.monotonic() + WAIT_SECONDS
    while alive() and time.monotonic() < deadline:
        await asyncio.sleep(0.01)  # killed, and not yet gone
    assert alive() == []


def _mentions(path: Path, what: bytes) -> bool:
    try:
        return what in path.read_bytes()
    except OSError:
        return False


ESCAPES = """
if os.fork() == 0:
    os.setsid()
    open({pid!r} + ".new", "w").write(str(os.getpid()))
    os.rename({pid!r} + ".new", {pid!r})
    time.sleep(60)
while not os.path.exists({pid!r}):
    time.sleep(0.01)
{then}
"""


@pytest.mark.parametrize("then", ["time.sleep(60)", "os.write(1, b'x' * (3 << 20))", "print('{}')"])
async def test_what_a_plugin_left_behind_holds_no_pull_up_and_no_pipe_open(bench: Bench, then: str) -> None:
    pid = bench.directory / "pid"
    bench.write("p", ESCAPES.format(pid=str(pid), then=then))
    plugins = bench.plugins("p", time_limit=5.0 * SLOWNESS)  # in which it has to start what is left behind
    before = len(list(Path("/proc/self/fd").iterdir()))
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            assert await bench.ask(plugins) == []
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.mark.parametrize(("content", "mode"), [(None, 0), ("#!/no/such/interpreter\n", 0o755), ("x", 0o600)])
async def test_a_plugin_that_cannot_be_executed_is_logged(
    bench: Bench, caplog: pytest.LogCaptureFixture, content: str | None, mode: int
) -> None:
    if content is not None:
        (bench.directory / "p").write_text(content)
        (bench.directory / "p").chmod(mode)
    assert await bench.ask(bench.plugins("p")) == []
    assert "it cannot be executed: " in caplog.text


async def test_a_plugin_that_does_not_read_may_answer_all_the_same(bench: Bench) -> None:
    answer = {"kind": "CredentialProviderResponse", "apiVersion": API, "cacheKeyType": "Image"}
    answer["auth"] = {"r.example": {"username": "u", "password": "blind"}}  # type: ignore[assignment]
    (bench.directory / "p").write_text(f"#!/bin/sh\nexec <&-\necho '{json.dumps(answer)}'\n")
    (bench.directory / "p").chmod(0o755)
    assert await bench.ask(bench.plugins("p")) == ["blind"]


# Service accounts


def account(bench: Bench, **annotations: str) -> None:
    bench.cluster.accounts["robot"] = {"metadata": {"name": "robot", "uid": "a1", "annotations": annotations}}


TOKEN: dict[str, Any] = {"token_audience": "r", "token_cache_type": "ServiceAccount"}


async def test_a_plugin_gets_a_token_of_the_pods_service_account(bench: Bench) -> None:
    bench.write("p")
    account(bench, need="1", like="2", other="3")
    plugins = bench.plugins("p", **TOKEN, required_annotations=("need",), optional_annotations=("like", "none"))
    (entries,) = await plugins.entries(IMAGE, pod(account="robot"), bench.cluster)
    assert entries.source == AccountSource("ns", "robot", "a1")
    (request,) = bench.requests
    assert request["serviceAccountToken"] == "token-1"
    assert request["serviceAccountAnnotations"] == {"need": "1", "like": "2"}
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p1"}
    assert bench.cluster.tokens == [{"audiences": ["r"], "boundObjectRef": bound}]


@pytest.mark.parametrize(("cache_type", "runs"), [("ServiceAccount", 1), ("Token", 2)])
async def test_answers_are_kept_per_account_or_per_token(bench: Bench, cache_type: str, runs: int) -> None:
    bench.write("p")
    account(bench)
    plugins = bench.plugins("p", **(TOKEN | {"token_cache_type": cache_type}))
    for uid in ("p1", "p2", "p2"):
        await bench.ask(plugins, account="robot", uid=uid)
    assert (len(bench.requests), len(bench.cluster.tokens)) == (runs, 2)


async def test_a_token_near_its_end_is_renewed(bench: Bench) -> None:
    bench.write("p")
    account(bench)
    bench.cluster.expiration = "2001-01-01T00:00:00Z"
    plugins = bench.plugins("p", **TOKEN)
    await bench.ask(plugins, account="robot")
    await bench.ask(plugins, account="robot")
    assert len(bench.cluster.tokens) == 2


@pytest.mark.parametrize(("required", "asked"), [(True, 0), (False, 1)])
async def test_a_pod_without_a_service_account(bench: Bench, required: bool, asked: int) -> None:
    bench.write("p")
    plugins = bench.plugins("p", **TOKEN, requires_account=required)
    assert len(await bench.ask(plugins)) == asked
    assert [request.get("serviceAccountToken") for request in bench.requests] == [None] * asked


@pytest.mark.parametrize(
    ("annotations", "why"), [(None, "cannot be read: not found"), ({}, "lacks an annotation that the plugin requires")]
)
async def test_a_plugin_is_not_asked_where_the_account_is_not_as_it_should_be(
    bench: Bench, caplog: pytest.LogCaptureFixture, annotations: dict[str, str] | None, why: str
) -> None:
    caplog.set_level(logging.DEBUG)
    bench.write("p")
    if annotations is not None:
        account(bench, **annotations)
    plugins = bench.plugins("p", **TOKEN, requires_account=True, required_annotations=("need",))
    assert await bench.ask(plugins, account="robot") == []
    assert f"credential plugin p is not asked for {IMAGE}: service account ns/robot {why}" in caplog.text
    assert any(record.levelno >= logging.WARNING for record in caplog.records) is (annotations is None)
    assert bench.requests == []


async def test_a_token_given_back_as_a_password_is_refused(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    auth = {"r.example": {"username": "u", "password": "token-1"}}
    bench.write("p", auth=auth)
    account(bench)
    assert await bench.ask(bench.plugins("p", **TOKEN), account="robot") == []
    assert "cacheType Token" in caplog.text
    assert "token-1" not in caplog.text
    token = TOKEN | {"token_cache_type": "Token"}
    bench.cluster.tokens.clear()
    assert await bench.ask(bench.plugins("p", **token), account="robot") == ["token-1"]
