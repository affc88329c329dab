"""A small HTTP(S) server with the answers of a test, and a run directory with credentials for it."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from shared.files.atomic import write_atomically
from shared.kube.client import KubeClient, kube_client
from shared.kube.credentials import Credentials, credentials_path, encode_credentials
from shared.metrics.registry import Registry
from shared.time.clock import SystemClock

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class StandIn:
    """The server's side: `handler` answers; what came is in `requests` and `bodies`."""

    url: str = ""
    handler: Handler = field(default=None)  # type: ignore[assignment]
    requests: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    peers: list[Any] = field(default_factory=list)  # certificate subjects of the clients

    def always(self, answer: Callable[[], web.StreamResponse]) -> None:
        """Give each request a response of its own."""

        async def handler(_: web.Request) -> web.StreamResponse:
            return answer()

        self.handler = handler

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Note the request and pass it on."""
        self.requests.append(request)
        self.bodies.append(await request.read())
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert") or {}
        self.peers.append({key: value for part in certificate.get("subject", ()) for key, value in part})
        return await self.handler(request)


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[StandIn]:
    """Serve on a port of 127.0.0.1."""
    stand_in = StandIn()
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", stand_in.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    stand_in.url = f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield stand_in
    finally:
        await runner.cleanup()


def put_credentials(run_dir: Path, version: int, server: str, **fields: Any) -> Credentials:
    """Write credentials as bootstrap does; the files named are put beside them."""
    directory = credentials_path(run_dir).parent
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("ca_file", "client_certificate_file", "client_key_file", "token_file"):
        if content := fields.get(name):
            fields[name] = str(directory / f"{name}.{version}")
            write_atomically(Path(fields[name]), content)
    credentials = Credentials(version=version, server=server, **fields)
    write_atomically(credentials_path(run_dir), encode_credentials(credentials))
    return credentials


@asynccontextmanager
async def client_of(
    run_dir: Path, *, timeout: float = 20, qps: float = -1, burst: int = 10, metrics: Registry | None = None
) -> AsyncIterator[KubeClient]:
    """A client that is closed at the end."""
    client = kube_client(run_dir, qps=qps, burst=burst, timeout=timeout, clock=SystemClock(), metrics=metrics)
    try:
        yield client
    finally:
        await client.close()
        await asyncio.sleep(0)  # one turn of the loop: transports of TLS close in the next


def status(code: int, reason: str = "", message: str = "", **details: Any) -> web.Response:
    """A Status object as the API server answers."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return web.Response(status=code, body=json.dumps({**body, "message": message, "details": details}).encode())
