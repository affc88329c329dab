"""containerd's task service as a real gRPC server answers it, also one that hangs, refuses or has no such service."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from shared.cri import task_service, tasks_pb2
from shared.cri.interface import RuntimeCallError
from shared.cri.task_service import end_task

_REQUESTS: dict[str, Any] = {
    "Kill": tasks_pb2.KillRequest,
    "Wait": tasks_pb2.WaitRequest,
    "Delete": tasks_pb2.DeleteTaskRequest,
}


class Service(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Answers all methods, those of `answers` with a code or (None) never. `asked`: namespace, method, request."""

    def __init__(self, answers: dict[str, grpc.StatusCode | None], deletes: float) -> None:
        self.answers, self.deletes = answers, deletes
        self.asked: list[tuple[str, str, Any]] = []

    def service(self, details: Any) -> Any:
        method = details.method.rpartition("/")[2]
        if details.method != f"/containerd.services.tasks.v1.Tasks/{method}":
            return None
        namespace = dict(details.invocation_metadata)["containerd-namespace"]

        async def answer(request: Any, context: Any) -> bytes:
            self.asked.append((namespace, method, request))
            self.deletes -= method == "Delete"
            if method in self.answers and (method != "Delete" or self.deletes >= 0):
                code = self.answers[method]
                await (asyncio.Event().wait() if code is None else context.abort(code, "why"))
            return b""

        return grpc.unary_unary_rpc_method_handler(answer, request_deserializer=_REQUESTS[method].FromString)


async def ended(
    directory: Path, answers: dict[str, grpc.StatusCode | None], *, deletes: float = float("inf")
) -> list[tuple[str, str, Any]]:
    """End task `t`; what the service was asked for. `deletes`: how many calls of Delete get the code of
    `answers`; later ones succeed."""
    service, server = Service(answers, deletes), grpc.aio.server()
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"unix://{directory}/s")
    await server.start()
    try:
        await end_task(f"unix://{directory}/s", "t")
    finally:
        await server.stop(0)
    return service.asked


RUNS = grpc.StatusCode.FAILED_PRECONDITION
NOT_FOUND = grpc.StatusCode.NOT_FOUND


async def test_a_task_that_has_ended_is_deleted(tmp_path: Path) -> None:
    assert await ended(tmp_path, {}) == [("k8s.io", "Delete", tasks_pb2.DeleteTaskRequest(container_id="t"))]


async def test_a_task_that_is_not_there_is_ended(tmp_path: Path) -> None:
    assert len(await ended(tmp_path, {"Delete": NOT_FOUND})) == 1


@pytest.mark.long
@pytest.mark.parametrize("refusal", [RUNS, grpc.StatusCode.UNKNOWN])
@pytest.mark.parametrize("code", ["", NOT_FOUND, RUNS])
async def test_one_that_cannot_be_deleted_is_killed_waited_for_and_then_deleted(
    tmp_path: Path, refusal: grpc.StatusCode, code: grpc.StatusCode | str
) -> None:
    answers = {"Kill": code, "Wait": code} if isinstance(code, grpc.StatusCode) else {}
    refused, kill, wait, delete = await ended(tmp_path, {"Delete": refusal, **answers}, deletes=1)
    assert refused == delete == ("k8s.io", "Delete", tasks_pb2.DeleteTaskRequest(container_id="t"))
    assert kill == ("k8s.io", "Kill", tasks_pb2.KillRequest(container_id="t", signal=9, all=True))
    assert wait == ("k8s.io", "Wait", tasks_pb2.WaitRequest(container_id="t"))


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ({"Delete": RUNS}, "FailedPrecondition"),
        ({"Delete": RUNS, "Wait": None}, "DeadlineExceeded"),  # a process that SIGKILL does not end
        ({"Delete": grpc.StatusCode.UNIMPLEMENTED}, "Unimplemented"),  # another runtime
        ({"Delete": grpc.StatusCode.UNAVAILABLE}, "Unavailable"),
    ],
)
async def test_a_failure_has_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[str, grpc.StatusCode | None], code: str
) -> None:
    if code == "DeadlineExceeded":
        monkeypatch.setattr(task_service, "_MAX_ANSWER_SECONDS", 0.3)
    with pytest.raises(RuntimeCallError) as error:
        await ended(tmp_path, answers)
    assert error.value.code == code and error.value.method.startswith("Tasks.")


async def test_a_socket_that_is_missing_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(RuntimeCallError) as error:
        await end_task(f"unix://{tmp_path}/missing", "t")
    assert error.value.code == "Unavailable"
