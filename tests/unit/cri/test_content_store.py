"""containerd's content store as a real gRPC server answers it, also one that hangs, fails or has no such service."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from shared.cri import content_pb2, content_store
from shared.cri.content_store import ContainerdContent
from shared.cri.interface import Blob, ContentStoreError, Ingest

Answer = Callable[[Any], Any]  # of a request: messages, bytes as they are; an exception is raised
_REQUESTS = {
    "ListStatuses": content_pb2.ListStatusesRequest,
    "List": content_pb2.ListContentRequest,
    "Info": content_pb2.InfoRequest,
    "Read": content_pb2.ReadContentRequest,
}


class Service(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Answers the methods of `answers`; `namespaces` of all requests."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.namespaces: set[str] = set()

    def service(self, details: Any) -> Any:
        method = details.method.rpartition("/")[2]
        if details.method != f"/containerd.services.content.v1.Content/{method}" or method not in self.answers:
            return None
        self.namespaces.add(dict(details.invocation_metadata)["containerd-namespace"])

        async def answer(request: Any, context: Any) -> AsyncIterator[bytes]:
            for one in self.answers[method](request):
                if isinstance(one, grpc.StatusCode):
                    await context.abort(one, "why")
                if one is None:
                    await asyncio.Event().wait()
                yield one if isinstance(one, bytes) else one.SerializeToString()

        return grpc.unary_stream_rpc_method_handler(answer, request_deserializer=_REQUESTS[method].FromString)


@asynccontextmanager
async def store(directory: Path, service: Service) -> AsyncIterator[ContainerdContent]:
    """A client of the service."""
    endpoint = f"unix://{directory}/s"
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(endpoint)
    await server.start()
    client = ContainerdContent(endpoint)
    try:
        yield client
    finally:
        await client.close()
        await server.stop(0)


async def test_the_requests_and_their_answers(tmp_path: Path) -> None:
    asked: list[Any] = []

    def statuses(request: Any) -> list[Any]:
        one = content_pb2.Status(ref="layer-sha256:1f", offset=5, total=10)
        return [content_pb2.ListStatusesResponse(statuses=[one])]

    def blobs(request: Any) -> list[Any]:
        asked.append(list(request.filters))
        info = content_pb2.Info(digest="sha256:2f", size=7, labels={"a": "b"})
        info.created_at.seconds = 9
        return [content_pb2.ListContentResponse(info=[info]), content_pb2.ListContentResponse(info=[info])]

    def info(request: Any) -> list[Any]:
        return [content_pb2.InfoResponse()] if request.digest == "sha256:2f" else [grpc.StatusCode.NOT_FOUND]

    def read(request: Any) -> list[Any]:
        return [content_pb2.ReadContentResponse(data=b"x" * 4)] * 3

    service = Service(ListStatuses=statuses, List=blobs, Info=info, Read=read)
    async with store(tmp_path, service) as content:
        assert await content.ingests() == (Ingest(digest="sha256:1f", offset=5),)
        blob = Blob(digest="sha256:2f", size=7, created_at=9.0, labels={"a": "b"})
        assert await content.blobs("r.example", "team/my.app") == (blob, blob)
        assert asked == [['labels."containerd.io/distribution.source.r.example"~="(^|,)team/my[.]app(,|$)"']]
        assert (await content.has("sha256:2f"), await content.has("sha256:3f")) == (True, False)
        assert await content.read("sha256:2f", 10) == b"x" * 10
    assert service.namespaces == {"k8s.io"}


async def test_a_name_that_is_no_repository_is_not_asked_for(tmp_path: Path) -> None:
    async with store(tmp_path, Service()) as content:
        assert await content.blobs("r.example", 'a"b') == ()
        assert await content.blobs("[", "a") == ()


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ({}, "Unimplemented"),
        ({"ListStatuses": lambda _: [grpc.StatusCode.UNAVAILABLE]}, "Unavailable"),
        ({"ListStatuses": lambda _: [b"\xff"]}, "Internal"),
        ({"ListStatuses": lambda _: [None]}, "DeadlineExceeded"),
        ({"ListStatuses": lambda _: [b"\x0a\x80\x80\x80\x03" + b"\x00" * (6 << 20)]}, "ResourceExhausted"),
    ],
    ids=["absent", "refused", "garbage", "hanging", "huge"],
)
async def test_a_failure_has_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[str, Answer], code: str
) -> None:
    if code == "DeadlineExceeded":
        monkeypatch.setattr(content_store, "_MAX_ANSWER_SECONDS", 0.2)
    async with store(tmp_path, Service(**answers)) as content:
        with pytest.raises(ContentStoreError) as error:
            await content.ingests()
        assert error.value.code == code


async def test_a_socket_that_is_missing_is_unavailable(tmp_path: Path) -> None:
    content = ContainerdContent(f"unix://{tmp_path}/missing")
    with pytest.raises(ContentStoreError) as error:
        await content.ingests()
    assert error.value.code == "Unavailable"
    await content.close()
