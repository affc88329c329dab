"""Sends READY=1 once for each supervisord, and checks whether that supervisord still answers.

It is noted in the run directory, so that the next bootstrap does not send it again. After a kill between sending and
noting it is sent twice, which systemd ignores.
"""

import asyncio
import logging
import os
from pathlib import Path

from shared.agent.service_notify import READY, notify, service_socket
from shared.files.atomic import write_atomically
from shared.log.klog import structured

log = logging.getLogger(__name__)

_NOTE = "ready"
_QUESTION = b"<?xml version='1.0'?><methodCall><methodName>supervisor.getState</methodName></methodCall>"


def notify_ready(run_dir: Path, generation: str) -> None:
    """Send READY=1 to the service manager, where there is one, once for each supervisord."""
    address, note = service_socket(), run_dir / _NOTE
    if not address:
        return
    try:
        if generation and note.exists() and note.read_text(encoding="utf-8") == generation:
            return
        notify(READY, address)
        write_atomically(note, generation.encode())
    except OSError as error:
        log.warning("%s", structured("Failed to notify the service manager", err=error.strerror, state=READY))


async def supervisord_answers(timeout: float) -> bool:
    """Return whether the supervisord that started us answers within `timeout` seconds. It imports none of its
    modules."""
    url = os.environ.get("SUPERVISOR_SERVER_URL", "")
    if not url.startswith("unix://"):
        return True  # there is no supervisord to check
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_unix_connection(url.removeprefix("unix://"))
            try:
                head = "POST /RPC2 HTTP/1.0\r\nContent-Type: text/xml\r\n"
                writer.write(f"{head}Content-Length: {len(_QUESTION)}\r\n\r\n".encode() + _QUESTION)
                return bool(await reader.readline())
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return False
