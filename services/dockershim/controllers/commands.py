"""Commands in containers, their terminals, and forwarded ports: ExecSync here, the others by the streaming server."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

from cri_api.v1 import api_pb2

from services.dockershim.adapters.engine import Engine, Exec
from services.dockershim.adapters.statuses import identity_of, is_running
from services.dockershim.adapters.streaming import Attached, Command, Forwarded, StreamingServer
from services.dockershim.controllers.sandboxes import Sandboxes
from services.dockershim.core.errors import CallError, not_found

# Of both streams of ExecSync together, so that the answer is not larger than CRI permits; what is beyond it is dropped.
MAX_OUTPUT_BYTES = 16 * 1024 * 1024 - 64 * 1024


class Commands:
    """Answers ExecSync, and the requests for the URL of a stream."""

    def __init__(self, engine: Engine, sandboxes: Sandboxes, streaming: StreamingServer) -> None:
        self._engine, self._sandboxes, self._streaming = engine, sandboxes, streaming

    async def exec_sync(self, request: Any) -> Any:
        """ExecSync. Raises CallError: DeadlineExceeded after the timeout, at which the command is killed."""
        await self._check_running(request.container_id)
        made = await self._engine.create_exec(request.container_id, request.cmd, stdin=False, tty=False)
        outputs = {1: bytearray(), 2: bytearray()}
        try:
            async with asyncio.timeout(request.timeout or None):
                async with made.start() as stream:
                    async for number, data in stream.output():
                        kept = outputs.setdefault(number, bytearray())
                        kept += data[: MAX_OUTPUT_BYTES - sum(map(len, outputs.values()))]
        except TimeoutError:
            await kill_exec(made, request.container_id)
            words = " ".join(request.cmd)[:200]
            raise CallError("DeadlineExceeded", f"command {words!r} timed out after {request.timeout} s") from None
        ended = await made.inspect()
        if not ended["Pid"]:  # Docker answers 126 or 127, and its reason as the output, where there was no process
            reason = bytes(outputs[1]).decode(errors="replace").strip()
            raise CallError("Unknown", f"failed to exec in container {request.container_id!r}: {reason}")
        code = ended["ExitCode"] or 0
        return api_pb2.ExecSyncResponse(stdout=bytes(outputs[1]), stderr=bytes(outputs[2]), exit_code=code)

    async def exec(self, request: Any) -> Any:
        """Exec: the URL of the command's streams."""
        await self._check_running(request.container_id)
        command = Command(request.container_id, _streams(request), request.tty, tuple(request.cmd))
        return api_pb2.ExecResponse(url=self._streaming.url_of(command))

    async def attach(self, request: Any) -> Any:
        """Attach: the URL of the streams of the container's first process."""
        inspected = await self._check_running(request.container_id)
        attached = Attached(request.container_id, _streams(request), bool(inspected["Config"]["Tty"]))
        return api_pb2.AttachResponse(url=self._streaming.url_of(attached))

    async def port_forward(self, request: Any) -> Any:
        """PortForward: the URL of connections to ports in the network namespace of a sandbox."""
        inspected = await self._sandboxes.find_identity(request.pod_sandbox_id)
        if not is_running(inspected):
            raise CallError("Unknown", f"sandbox {request.pod_sandbox_id} is not running")
        return api_pb2.PortForwardResponse(url=self._streaming.url_of(Forwarded(request.pod_sandbox_id)))

    async def _check_running(self, container_id: str) -> dict[str, Any]:
        inspected = await self._engine.inspect(container_id)
        if (identity := identity_of(inspected)) is None or not identity.container:
            raise not_found("container", container_id)  # someone else's
        if not is_running(inspected):
            raise CallError("Unknown", f"container is in state {inspected['State']['Status']}, not running")
        return inspected


def _streams(request: Any) -> tuple[str, ...]:
    wanted = {"stdin": request.stdin, "stdout": request.stdout, "stderr": request.stderr and not request.tty}
    return tuple(name for name, is_wanted in wanted.items() if is_wanted)


async def kill_exec(made: Exec, container_id: str) -> None:
    """Kill the process of a command: Docker has no request for it. One that has ended is no error."""
    inspected = await made.inspect()
    pid = inspected.get("Pid") or 0
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(pid)  # what the cgroup says afterwards is said of this process, not of a later one
        try:
            if container_id in Path(f"/proc/{pid}/cgroup").read_text():
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
