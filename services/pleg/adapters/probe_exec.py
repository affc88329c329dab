"""Carries out exec probes: runs a command in the container through the runtime."""

import json
from collections.abc import Sequence

from services.pleg.core.probe_outcome import Outcome, text_of
from services.pleg.core.probe_worker import Verdict
from shared.cri.interface import Runtime, RuntimeCallError
from shared.time.clock import Clock


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
