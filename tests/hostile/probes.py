"""Probes hostile servers as pleg does, and runs hooks against them as podsync does, eight at a time."""

import asyncio
import contextlib
import json
import random
import ssl
import sys

from services.pleg.adapters.probe_grpc import probe_grpc
from services.pleg.adapters.probe_http import probe_http
from services.pleg.core.probe_outcome import MAX_OUTPUT_BYTES
from services.pleg.core.probe_spec import HttpHandler
from shared.http_get.dialing import DialError
from shared.http_get.exchange import BodyError, exchange
from shared.http_get.received import AnswerError
from shared.http_get.request import target_of
from shared.http_get.response import MalformedAnswerError
from tests.hostile.servers import HOST
from tests.hostile.strain import Strain, measured
from tests.support.waits.deadline import WAIT_SECONDS

AT_ONCE = 8
LATE_SECONDS = WAIT_SECONDS  # after its timeout a probe must long have ended, also on a busy machine


async def probe_hostile_servers(seconds: float, seed: str) -> Strain:
    """Probe for this long."""
    strain = Strain()
    servers = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.hostile.servers", seed,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert servers.stdout is not None and servers.stdin is not None
    ports: list[int] = json.loads(await servers.stdout.readline())

    async def work(number: int, end: float) -> None:
        draw = random.Random(f"{seed} {number}")
        while asyncio.get_running_loop().time() < end:
            timeout = draw.choice((0.05, 0.3, 1.0))
            try:
                async with asyncio.timeout(timeout + LATE_SECONDS):
                    strain.count(await _one(draw, ports, timeout))
            except TimeoutError:
                strain.problems.append(f"no end {LATE_SECONDS:.0f} s after the timeout of {timeout} s")
            except Exception as error:
                strain.problems.append(f"raised {error!r}")

    try:
        async with measured(strain, seconds) as end, asyncio.TaskGroup() as group:
            for number in range(AT_ONCE):
                group.create_task(work(number, end))
    finally:
        servers.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            servers.kill()
        await servers.wait()
    return strain


async def _one(draw: random.Random, ports: list[int], timeout: float) -> str:
    port = draw.choice(ports)
    scheme = "http" if port == ports[0] else "https"
    kind = draw.choice(("probe", "hook", "grpc")) if scheme == "http" else draw.choice(("probe", "hook"))
    if kind == "hook":
        target = target_of(scheme, HOST, port, "/", (), "kube-lifecycle/1.37")
        try:
            async with asyncio.timeout(timeout):
                await exchange(target, lambda _: MAX_OUTPUT_BYTES)
        except (TimeoutError, DialError, AnswerError, MalformedAnswerError, BodyError, ssl.SSLError, OSError) as error:
            return f"hook {type(error).__name__}"
        return "hook success"
    if kind == "grpc":
        outcome = await probe_grpc(HOST, port, "", timeout, "kube-probe/1.37")
    else:
        outcome = await probe_http(HttpHandler(scheme, "", port, "/", ()), HOST, port, timeout, "kube-probe/1.37")
    return f"{kind} {outcome.verdict}"
