"""containerd's content store over its own API, read-only: what is being fetched, and the manifests that are there.

Has a connection of its own: a store that hangs delays no CRI call. Other runtimes answer Unimplemented.
"""

import re
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from shared.cri import content_pb2
from shared.cri.channel import target
from shared.cri.interface import Blob, ContentStoreError, Ingest
from shared.plugin_grpc.grpc_codes import code_name

_SERVICE = "/containerd.services.content.v1.Content"
_METADATA = (("containerd-namespace", "k8s.io"),)  # of what containerd pulls for CRI
_MAX_ANSWER_SECONDS = 2.0
_MAX_BLOBS = 10_000  # of one repository
_NAME = re.compile(r"[A-Za-z0-9._/-]+")  # what a filter takes as it is
_SOURCE = "containerd.io/distribution.source"
_OPTIONS = (
    ("grpc.max_receive_message_length", 4 * 1024 * 1024),
    ("grpc.use_local_subchannel_pool", 1),  # else it would share the connection of CRI
    ("grpc.enable_http_proxy", 0),
)


class ContainerdContent:
    """The store of the runtime at `endpoint` (`unix:///path`), as `shared.cri.interface.ContentStore`."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._channel: Any = None

    async def ingests(self) -> tuple[Ingest, ...]:
        """Return the blobs that are being fetched, of all images (ListStatuses). Raises ContentStoreError."""
        request = content_pb2.ListStatusesRequest()
        answers = self._answers("ListStatuses", request, content_pb2.ListStatusesResponse)
        found = [one async for answer in answers for one in answer.statuses]
        return tuple(Ingest(digest=one.ref.rpartition("-")[2], offset=one.offset) for one in found)

    async def blobs(self, host: str, repository: str) -> tuple[Blob, ...]:
        """Return the blobs that were fetched from this repository, of more than 10 000 only the first. `host` has no
        port. Calls List. Raises ContentStoreError."""
        if not _NAME.fullmatch(f"{host}/{repository}"):
            return ()
        pattern = repository.replace(".", "[.]")
        request = content_pb2.ListContentRequest(filters=[f'labels."{_SOURCE}.{host}"~="(^|,){pattern}(,|$)"'])
        found: list[Blob] = []
        async for answer in self._answers("List", request, content_pb2.ListContentResponse):
            found += [
                Blob(
                    digest=info.digest,
                    size=info.size,
                    created_at=info.created_at.seconds + info.created_at.nanos / 1e9,
                    labels=dict(info.labels),
                )
                for info in answer.info
            ]
            if len(found) >= _MAX_BLOBS:
                break
        return tuple(found)

    async def has(self, digest: str) -> bool:
        """Return whether the blob is complete (Info). Raises ContentStoreError."""
        try:
            async for _ in self._answers("Info", content_pb2.InfoRequest(digest=digest), content_pb2.InfoResponse):
                return True
        except ContentStoreError as error:
            if error.code != "NotFound":
                raise
        return False

    async def read(self, digest: str, limit: int) -> bytes:
        """Return the blob's first `limit` bytes (Read). Raises ContentStoreError."""
        request = content_pb2.ReadContentRequest(digest=digest, size=limit)
        found = b""
        async for answer in self._answers("Read", request, content_pb2.ReadContentResponse):
            found += answer.data
            if len(found) >= limit:
                break
        return found[:limit]

    async def close(self) -> None:
        """Close the connection; calls in progress end."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _answers(self, method: str, request: Message, answer: type[Any]) -> AsyncIterator[Any]:
        """Yield the messages of the answer; a unary call is a stream of one."""
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(target(self._endpoint), options=_OPTIONS)
        stub = self._channel.unary_stream(
            f"{_SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=lambda data: data,
        )
        call = stub(request, timeout=_MAX_ANSWER_SECONDS, metadata=_METADATA)
        try:
            async for data in call:
                message = answer()
                message.ParseFromString(data)
                yield message
        except grpc.aio.AioRpcError as error:
            raise ContentStoreError(code_name(error.code()), f"{method}: {error.details() or ''}"[:500]) from None
        except DecodeError:
            raise ContentStoreError("Internal", f"{method}: the answer cannot be decoded") from None
        finally:
            call.cancel()
