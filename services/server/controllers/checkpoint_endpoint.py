"""Answers `/checkpoint`: the runtime writes the state of a running container to an archive (server.md 15.1).

The runtime owns the archive: when this process is killed meanwhile, the runtime still completes or removes it."""

from datetime import UTC, datetime
from pathlib import Path

import orjson
from aiohttp import web

from services.server.adapters.plain_answer import plain
from services.server.controllers.pod_streams import PodStreams
from services.server.controllers.request_handler import EndpointHandler
from services.server.core.logs.log_source import has_container
from services.server.core.pods.checkpoint_request import archive_name, checkpoint_timeout
from services.server.core.pods.pod_lists import find_pod
from services.server.core.pods.stream_target import running_container
from services.server.core.routes import Endpoint
from shared.cri.interface import Runtime, RuntimeCallError
from shared.time.clock import Clock

CHECKPOINTS = "checkpoints"  # a directory below the root directory


class CheckpointEndpoint:
    """Answers checkpoint requests; the archives are written below `root`, the root directory."""

    def __init__(self, streams: PodStreams, runtime: Runtime, clock: Clock, root: str) -> None:
        self._streams, self._runtime, self._clock = streams, runtime, clock
        self._directory = Path(root) / CHECKPOINTS

    @property
    def handlers(self) -> dict[Endpoint, EndpointHandler]:
        """The handler of each endpoint."""
        return {Endpoint.CHECKPOINT: self.checkpoint}

    async def checkpoint(self, request: web.BaseRequest, parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `POST /checkpoint/{namespace}/{pod}/{container}`."""
        namespace, pod, container = parameters
        desired = find_pod(self._streams.desired.state.values(), namespace, pod)
        if desired is None:
            return plain(404, "pod does not exist")
        if not has_container(desired.pod, container):
            return plain(404, f"container {container} does not exist")
        try:
            timeout = checkpoint_timeout(request.rel_url.raw_query_string)
        except ValueError:
            return plain(404, "cannot parse value of timeout parameter")
        now = datetime.fromtimestamp(self._clock.wall(), UTC).astimezone()
        archive = str(self._directory / archive_name(namespace, pod, container, now))
        status, observed = self._streams.status_of(desired), self._streams.runtime.state.get(desired.uid)
        container_id = running_container(container, status, observed)
        try:
            if not container_id:
                raise LookupError(f"container {container} not found")
            await self._runtime.checkpoint_container(container_id, archive, timeout)
        except (LookupError, RuntimeCallError) as error:
            return plain(500, f"checkpointing of {namespace}/{pod}/{container} failed ({error})")
        return web.Response(body=orjson.dumps({"items": [archive]}), headers={"Content-Type": "application/json"})
