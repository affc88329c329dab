"""containerd's task service over its own API: ends what CRI has lost sight of. Other runtimes answer Unimplemented.

A StartContainer that is cut off while it creates the task leaves a task that CRI neither shows nor removes; on
containerd 2.1 a RunPodSandbox leaves one that CRI forgets when the sandbox is removed.
"""

import signal
from typing import Any

import grpc
import grpc.aio

from shared.cri import tasks_pb2
from shared.cri.channel import target
from shared.cri.interface import RuntimeCallError
from shared.plugin_grpc.grpc_codes import code_name
from shared.process.deadlines import waiting_for

_SERVICE = "/containerd.services.tasks.v1.Tasks"
_METADATA = (("containerd-namespace", "k8s.io"),)  # of what containerd runs for CRI
_MAX_ANSWER_SECONDS = 10.0  # of each of the four requests
_GONE = ("NotFound", "FailedPrecondition")  # there is no task, or its process has ended
_UNDELETED = ("FailedPrecondition", "Unknown", "Internal")  # the task runs, or its shim cannot delete it like this
_OPTIONS = (
    ("grpc.max_receive_message_length", 64 * 1024),
    ("grpc.use_local_subchannel_pool", 1),  # else it would share the connection of CRI
    ("grpc.enable_http_proxy", 0),
)


async def end_task(endpoint: str, task_id: str) -> None:
    """Delete the task; the processes of one that runs are killed first. `task_id` is the id of a container or sandbox.
    Without such a task there is nothing to do. Raises RuntimeCallError, at the latest after 40 s."""
    delete = tasks_pb2.DeleteTaskRequest(container_id=task_id)
    async with grpc.aio.insecure_channel(target(endpoint), options=_OPTIONS) as channel:
        with waiting_for("containerd's task service", 4 * _MAX_ANSWER_SECONDS):
            if await _send(channel, "Delete", delete, expected=("NotFound", *_UNDELETED)) not in _UNDELETED:
                return
            kill = tasks_pb2.KillRequest(container_id=task_id, signal=signal.SIGKILL, all=True)
            await _send(channel, "Kill", kill)
            await _send(channel, "Wait", tasks_pb2.WaitRequest(container_id=task_id))
            await _send(channel, "Delete", delete, expected=("NotFound",))


async def _send(channel: Any, method: str, request: Any, expected: tuple[str, ...] = _GONE) -> str:
    """Return "" or the code of a refusal that was expected. Raises RuntimeCallError for others."""
    stub = channel.unary_unary(f"{_SERVICE}/{method}", request_serializer=lambda message: message.SerializeToString())
    try:
        await stub(request, timeout=_MAX_ANSWER_SECONDS, metadata=_METADATA)
    except grpc.aio.AioRpcError as error:
        code = code_name(error.code())
        if code not in expected:
            raise RuntimeCallError(f"Tasks.{method}", code, (error.details() or "")[:500]) from None
        return code
    return ""
