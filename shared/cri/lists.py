"""Lists everything of one kind that the runtime has: as a stream of parts where it is asked for and the runtime has it
(gate CRIListStreaming), else in one answer, which holds 16 MiB at most.

The messages of a stream are not in the generated code, and need not be: its request has the bytes of the request for
the list, and each part, with one entry or several, those of an answer with these entries. So an answer of the list is
what all parts are merged into. Of a stream that fails nothing counts.
"""

import asyncio
import logging
from typing import Any

from cri_api.v1 import api_pb2

from shared.cri.channel import MAX_MESSAGE_BYTES, CriChannel

_RUNTIME, _IMAGE = "/runtime.v1.RuntimeService/", "/runtime.v1.ImageService/"
_STREAMS: dict[str, tuple[str, Any]] = {  # list -> path of its stream, what the parts are merged into
    "ListContainers": (f"{_RUNTIME}StreamContainers", api_pb2.ListContainersResponse),
    "ListPodSandbox": (f"{_RUNTIME}StreamPodSandboxes", api_pb2.ListPodSandboxResponse),
    "ListContainerStats": (f"{_RUNTIME}StreamContainerStats", api_pb2.ListContainerStatsResponse),
    "ListPodSandboxStats": (f"{_RUNTIME}StreamPodSandboxStats", api_pb2.ListPodSandboxStatsResponse),
    "ListPodSandboxMetrics": (f"{_RUNTIME}StreamPodSandboxMetrics", api_pb2.ListPodSandboxMetricsResponse),
    "ListImages": (f"{_IMAGE}StreamImages", api_pb2.ListImagesResponse),
}
log = logging.getLogger(__name__)


class Lists:
    """The lists over one connection; `timeout` in seconds, for a stream as a whole. A runtime is asked for each stream
    once per connection: one that came back may be a newer one."""

    def __init__(self, channel: CriChannel, timeout: float, *, streamed: bool = False) -> None:
        self._channel, self._timeout, self._streamed = channel, timeout, streamed
        self._lacking: set[str] = set()  # lists that the runtime of this connection does not stream
        self._connection: asyncio.Task[None] | None = None  # ends with the connection

    async def whole(self, stub: Any, method: str, request: Any) -> Any:
        """Return the answer of a list without a filter, as one message. Raises RuntimeCallError: ResourceExhausted for
        one beyond the limits of the channel."""
        if self._streamed and method not in self._lacking:
            path, kind = _STREAMS[method]
            answer = kind()
            if await self._channel.merge(path, method, request, answer, self._timeout):
                return answer
            self._note_lacking(method)
        return await self._channel.call(stub, method, request, self._timeout)

    def close(self) -> None:
        """Wait no longer for the end of the connection."""
        if self._connection is not None:
            self._connection.cancel()

    def _note_lacking(self, method: str) -> None:
        if not self._lacking:
            log.info("the runtime does not stream its lists, which therefore have %d bytes at most", MAX_MESSAGE_BYTES)
        self._lacking.add(method)
        if self._connection is None or self._connection.done():
            self._connection = asyncio.create_task(self._forget_with_connection(), name="lists of the runtime")

    async def _forget_with_connection(self) -> None:
        await self._channel.disconnected()
        self._lacking.clear()
