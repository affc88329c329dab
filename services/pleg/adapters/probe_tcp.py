"""Carries out tcpSocket probes: a connection that opens is a success."""

import asyncio

from services.pleg.core.probe_outcome import Outcome
from services.pleg.core.probe_worker import Verdict
from shared.http_get.dialing import DialError, abort, address, dial


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
