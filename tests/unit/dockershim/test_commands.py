"""ExecSync: what a command that ended, and one that could not be started, is to the caller."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from cri_api.v1 import api_pb2

from services.dockershim.adapters.engine import Engine
from services.dockershim.adapters.streaming import StreamingServer
from services.dockershim.controllers.commands import Commands
from services.dockershim.controllers.sandboxes import Sandboxes
from services.dockershim.core.errors import CallError


class EndedCommand:
    """A command in Docker with this output, its process on the host (0 = none was started) and exit code."""

    def __init__(self, output: bytes, pid: int, code: int) -> None:
        self._output, self._pid, self._code = output, pid, code

    def start(self) -> "EndedCommand":
        return self

    async def __aenter__(self) -> "EndedCommand":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        yield 1, self._output

    async def inspect(self) -> dict[str, Any]:
        return {"Running": False, "Pid": self._pid, "ExitCode": self._code}


class EngineWithCommand:
    """A Docker whose only container runs."""

    def __init__(self, command: EndedCommand) -> None:
        self._command = command

    async def inspect(self, container: str) -> dict[str, Any]:
        return {"Id": container, "Name": "/k8s_c_web_default_u-1_0", "State": {"Running": True}}

    async def create_exec(self, container: str, command: object, *, stdin: bool, tty: bool) -> EndedCommand:
        return self._command


async def exec_sync(command: EndedCommand) -> Any:
    engine = cast(Engine, EngineWithCommand(command))
    commands = Commands(engine, cast(Sandboxes, None), StreamingServer())
    return await commands.exec_sync(api_pb2.ExecSyncRequest(container_id="c", cmd=["x"]))


async def test_a_command_that_ran_answers_its_exit_code_also_one_that_docker_uses_itself() -> None:
    answer = await exec_sync(EndedCommand(b"said", pid=5, code=126))
    assert (answer.exit_code, answer.stdout) == (126, b"said")


async def test_a_program_that_cannot_be_run_is_an_error_of_the_runtime_and_no_exit_code() -> None:
    with pytest.raises(CallError, match=r'exec: "/no/such": no such file or directory$') as failed:
        await exec_sync(EndedCommand(b'exec: "/no/such": no such file or directory\r\n', pid=0, code=126))
    assert failed.value.code == "Unknown"
