"""Carries out one try of a probe, whatever its handler: up to three times at once while it cannot be carried out."""

import logging

from services.pleg.adapters.probe_exec import probe_exec
from services.pleg.adapters.probe_grpc import probe_grpc
from services.pleg.adapters.probe_http import probe_http
from services.pleg.adapters.probe_tcp import probe_tcp
from services.pleg.core.probe_outcome import Outcome
from services.pleg.core.probe_spec import ExecHandler, GrpcHandler, HttpHandler, ProbeSpec, TcpHandler
from services.pleg.core.probe_worker import Verdict
from shared.cri.interface import Runtime
from shared.time.clock import Clock

log = logging.getLogger(__name__)

TRIES = 3


class ProbeRunner:
    """`request_timeout`: seconds the runtime gets beyond a command's own."""

    def __init__(self, runtime: Runtime, clock: Clock, request_timeout: float) -> None:
        self._runtime, self._clock, self._request_timeout = runtime, clock, request_timeout

    async def __call__(self, spec: ProbeSpec, container_id: str, address: str) -> Outcome:
        """One try. `address`: the pod's IP, "" = not known. Never raises but when cancelled."""
        outcome = Outcome(Verdict.ERROR, "not tried")
        for _ in range(TRIES):
            try:
                outcome = await self._once(spec, container_id, address)
            except Exception as error:  # of our making: must not take the other probes down
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
                return await probe_http(handler, host or address, port, spec.timeout)
            case TcpHandler(host, int(port)) if host or address:
                return await probe_tcp(host or address, port, spec.timeout)
            case GrpcHandler(int(port), service) if address:
                return await probe_grpc(address, port, service, spec.timeout)
            case HttpHandler(port=str(problem)) | TcpHandler(port=str(problem)) | GrpcHandler(port=str(problem)):
                return Outcome(Verdict.ERROR, problem)
            case HttpHandler() | TcpHandler() | GrpcHandler():
                return Outcome(Verdict.ERROR, "the pod has no IP address yet")
        return Outcome(Verdict.ERROR, "missing probe handler")
