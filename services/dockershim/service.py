"""Builds the shim: Docker's API, networks, logs, streams, and CRI on a socket; connects them."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from services.dockershim.adapters.engine import REQUEST_SECONDS, Engine
from services.dockershim.adapters.network import Networks
from services.dockershim.adapters.streaming import StreamingServer
from services.dockershim.controllers.commands import Commands
from services.dockershim.controllers.containers import Containers
from services.dockershim.controllers.images import Images
from services.dockershim.controllers.log_files import LogFiles
from services.dockershim.controllers.runtime_service import RuntimeService
from services.dockershim.controllers.sandboxes import Sandboxes
from services.dockershim.controllers.sessions import Sessions
from services.dockershim.core.create_requests import Host
from services.dockershim.core.errors import CallError
from shared.plugin_grpc.serving import SocketServer

log = logging.getLogger(__name__)

_LOOK_SECONDS = 60.0  # between two looks for networks whose sandbox was removed by hand
_RETRY_SECONDS = 1.0  # while Docker cannot be reached
MAX_REQUEST_BYTES = 16 * 1024 * 1024  # of CRI, as the kubelet's
MAX_CALLS = 4096  # at the same time: each stop of a container is one for its whole grace


class Settings(Struct, frozen=True, kw_only=True):
    """What the shim is told. `socket`: where it serves CRI; `records`: a directory of its own."""

    docker_endpoint: str
    socket: Path
    records: Path
    sandbox_image: str
    cni_binaries: tuple[str, ...]
    cni_configurations: Path
    pull_progress_seconds: float = 60.0
    oom_score_floor: int = -1000
    request_seconds: float = REQUEST_SECONDS


class DockerShim:
    """The service. Docker's containers are its state: a kill at any moment loses nothing."""

    def __init__(self, settings: Settings, trouble: Callable[[str | None], None] = lambda _: None) -> None:
        self._settings, self._trouble = settings, trouble

    async def run(self) -> None:
        """Serve until cancelled."""
        settings = self._settings
        engine = Engine(settings.docker_endpoint, settings.request_seconds)
        host = Host(settings.sandbox_image, settings.oom_score_floor)
        networks = Networks(settings.records, settings.cni_binaries, settings.cni_configurations)
        sandboxes, logs, streaming = Sandboxes(engine, networks, host), LogFiles(engine), StreamingServer()
        streaming.serve = Sessions(engine).serve
        containers = Containers(engine, sandboxes, logs, host)
        images = Images(engine, settings.sandbox_image, settings.pull_progress_seconds)
        commands = Commands(engine, sandboxes, streaming)
        calls = RuntimeService(engine, networks, sandboxes, containers, images, commands)
        server = SocketServer(settings.socket, calls.services(), MAX_REQUEST_BYTES, MAX_CALLS)
        try:
            await streaming.start()
            await server.open(self._trouble)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(logs.run(), name="logs")
                tasks.create_task(_follow_docker(sandboxes, logs), name="docker")
        finally:
            await server.stop()
            await streaming.stop()
            await engine.close()


async def _follow_docker(sandboxes: Sandboxes, logs: LogFiles) -> None:
    """Do from time to time what no call asks for. A Docker that is away is logged once."""
    said = ""
    while True:
        pause = _LOOK_SECONDS
        try:
            await logs.follow_running()
            await sandboxes.remove_lost_networks()
            said = ""
        except Exception as error:  # whatever Docker answers, calls and logs go on
            if not isinstance(error, CallError):
                log.exception("the look at Docker failed")
            pause = _RETRY_SECONDS
            if str(error) != said:
                said = str(error)
                log.error("%s", error)
        await asyncio.sleep(pause)
