"""The API server's double behind a port, for real processes: plain HTTP, a user by bearer token or none.

Runs in a thread with a loop of its own; what a test does to the double goes through `do`, in that thread.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import orjson
from aiohttp import web

from shared.kube.interface import ApiClient, ApiStatusError, PatchType
from shared.time.clock import SystemClock
from tests.fakes.api_resources import NEWEST, OlderServer
from tests.fakes.api_server import FakeApiServer
from tests.fakes.api_signer import Signer

T = TypeVar("T")
_ANSWERS_EVERY = 0.02  # seconds between two looks of the signer, when it works by itself


class HttpApiServer:
    """`with HttpApiServer() as api:`; `signs` while it is true each request is approved and issued at once.
    `address`: an IPv4 address of this machine, where it listens."""

    def __init__(self, drops: OlderServer = NEWEST, *, address: str = "127.0.0.1") -> None:
        self._address = address
        self.signs = True
        self.server = FakeApiServer(SystemClock(), drops=drops)
        self.signer = Signer(self.server)
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready, self._ending = threading.Event(), asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http://{self._address}:{self.port}"

    def write_kubeconfig(self, path: Path, node: str) -> None:
        """Write the kubeconfig of a node. Its token is the name of its user, because the double takes a token for
        the name of a user."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": f"system:node:{node}"}}],
            "current-context": "x",
        }
        path.write_bytes(orjson.dumps(document))

    def do(self, work: Callable[[], T]) -> T:
        """Call it in the server's thread; what it returns."""

        async def call() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(10)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        listener = socket.create_server((self._address, 0))
        await web.SockSite(runner, listener).start()
        self.port = listener.getsockname()[1]
        self._ready.set()
        while not self._ending.is_set():
            if self.signs:
                self.signer.serve()
            try:
                async with asyncio.timeout(_ANSWERS_EVERY):
                    await self._ending.wait()
            except TimeoutError:
                continue
        # asyncio drops a connection without closing it when the server closes between its acceptance and its transport:
        # accept none, and let three turns of the loop pass, until aiohttp knows those that were accepted.
        self._loop.remove_reader(listener)
        for _ in range(3):
            await asyncio.sleep(0)
        await runner.cleanup()
        watches = asyncio.all_tasks() - {asyncio.current_task()}  # their clients are gone
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        await asyncio.sleep(0)  # a transport closes its socket one turn after it is closed

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        client = self.server.client(token or "system:node:by-certificate")
        query = dict(request.query)
        try:
            if query.pop("watch", ""):
                return await self._watch(request, client, query)
            found = await self._object(request, client, query)
        except ApiStatusError as error:
            status = {"kind": "Status", "reason": error.reason, "message": str(error), "code": error.code}
            return web.Response(body=orjson.dumps(status), status=error.code, content_type="application/json")
        return web.Response(body=orjson.dumps(found), content_type="application/json")

    async def _object(self, request: web.Request, client: ApiClient, query: dict[str, str]) -> dict[str, Any]:
        if request.method == "GET":
            return await client.get(request.path, query)
        text = await request.read()
        body: Any = orjson.loads(text) if text else None
        match request.method:
            case "POST":
                return await client.create(request.path, body)
            case "PUT":
                return await client.update(request.path, body)
            case "PATCH":
                return await client.patch(request.path, body, PatchType(request.content_type))
            case _:
                return await client.delete(request.path, body, query)

    async def _watch(self, request: web.Request, client: ApiClient, query: dict[str, str]) -> web.StreamResponse:
        seconds = float(query.pop("timeoutSeconds", "30"))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        async with client.watch(request.path, query, timeout=seconds) as events:
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):  # a killed client
                async for event in events:
                    await response.write(orjson.dumps({"type": event.type, "object": event.object}) + b"\n")
        return response
