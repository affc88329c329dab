"""Carries out one try of a probe with any handler, and repeats it at once, up to three times, where it gets no
result."""

import asyncio
import json
import logging
from collections.abc import Sequence

from services.pleg.adapters.probe_grpc import probe_grpc
from services.pleg.adapters.probe_http import probe_http
from services.pleg.core.probe_outcome import Outcome, text_of
from services.pleg.core.probe_spec import ExecHandler, GrpcHandler, HttpHandler, ProbeSpec, TcpHandler
from services.pleg.core.probe_worker import Verdict
from shared.cri.interface import Runtime, RuntimeCallError
from shared.http_get.dialing import DialError, abort, address, dial
from shared.time.clock import Clock

MAX_TRIES = 3

log = logging.getLogger(__name__)


async def probe_exec(
    runtime: Runtime, clock: Clock, container_id: str, command: Sequence[str], timeout: float, request_timeout: float
) -> Outcome:
    """Run the command, which the runtime ends after `timeout` seconds. Where the runtime does not answer within
    `request_timeout` seconds more, the result is Verdict.ERROR, because the container was not tested."""
    began = clock.monotonic()
    try:
        result = await runtime.exec_sync(container_id, command, int(timeout))
    except RuntimeCallError as error:
        given_up = clock.monotonic() - began >= timeout + request_timeout - 1
        if error.code != "DeadlineExceeded" or given_up:
            return Outcome(Verdict.ERROR, str(error))
        shown = json.dumps(" ".join(command), ensure_ascii=False)
        return Outcome(Verdict.FAILURE, f"command timed out: {shown} timed out after {timeout:g}s")
    output = text_of(result.stdout + result.stderr)
    return Outcome(Verdict.SUCCESS if result.exit_code == 0 else Verdict.FAILURE, output)


async def probe_tcp(host: str, port: int, timeout: float) -> Outcome:
    """Connect within `timeout` seconds, and close the connection."""
    try:
        async with asyncio.timeout(timeout):
            _, writer = await dial(host, port)
    except TimeoutError:
        return Outcome(Verdict.FAILURE, f"dial tcp {address(host, port)}: i/o timeout")
    except DialError as error:
        return Outcome(Verdict.FAILURE, str(error))
    abort(writer)
    return Outcome(Verdict.SUCCESS)


class ProbeRunner:
    """Carries out tries. `request_timeout`: seconds that the runtime has beyond the timeout of a command; `release`:
    one of RELEASES, which servers are told."""

    def __init__(self, runtime: Runtime, clock: Clock, request_timeout: float, release: str) -> None:
        self._runtime, self._clock, self._request_timeout = runtime, clock, request_timeout
        self._user_agent = f"kube-probe/{release}"

    async def __call__(self, spec: ProbeSpec, container_id: str, address: str) -> Outcome:
        """Carry out one try. `address`: the pod's IP, "" = not known. It raises only when it is cancelled."""
        outcome = Outcome(Verdict.ERROR, "not tried")
        for _ in range(MAX_TRIES):
            try:
                outcome = await self._once(spec, container_id, address)
            except Exception as error:  # a bug, which must not end the other probes
                log.exception("a %s probe of container %s broke", spec.kind, container_id)
                outcome = Outcome(Verdict.ERROR, f"{type(error).__name__}: {error}")
            if outcome.verdict is not Verdict.ERROR:
                break
        return outcome

    async def _once(self, spec: ProbeSpec, container_id: str, address: str) -> Outcome:
        match spec.handler:
            case ExecHandler(str(problem)):
                return Outcome(Verdict.ERROR, problem)
            case ExecHandler(tuple(command)):
                return await probe_exec(
                    self._runtime, self._clock, container_id, command, spec.timeout, self._request_timeout
                )
            case HttpHandler(host=host, port=int(port)) as handler if host or address:
                return await probe_http(handler, host or address, port, spec.timeout, self._user_agent)
            case TcpHandler(host, int(port)) if host or address:
                return await probe_tcp(host or address, port, spec.timeout)
            case GrpcHandler(int(port), service, tls) if address:
                return await probe_grpc(address, port, service, spec.timeout, self._user_agent, tls=tls)
            case HttpHandler(port=str(problem)) | TcpHandler(port=str(problem)) | GrpcHandler(port=str(problem)):
                return Outcome(Verdict.ERROR, problem)
            case HttpHandler() | TcpHandler() | GrpcHandler():
                return Outcome(Verdict.ERROR, "the pod has no IP address yet")
        return Outcome(Verdict.ERROR, "missing probe handler")
