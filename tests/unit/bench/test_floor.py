"""What the floor measures is a pod with one container, whatever else it measures on the way."""

import subprocess
from types import SimpleNamespace
from typing import Any, cast

from cri_api.v1 import api_pb2

from bench.scenarios import floor


class FakeRuntime:
    """A stub whose containers are real processes."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.process = subprocess.Popen(["sleep", "60"])

    def __getattr__(self, method: str) -> Any:
        async def answer(request: Any) -> Any:
            self.calls.append(method)
            ended = self.process.poll() is not None
            state = api_pb2.CONTAINER_EXITED if ended else api_pb2.CONTAINER_RUNNING
            info = {"info": f'{{"pid": {self.process.pid}}}'}
            return SimpleNamespace(container_id="ends", status=SimpleNamespace(state=state), info=info)

        return answer


async def test_the_container_whose_exit_is_measured_is_gone_before_the_stop_is() -> None:
    runtime = FakeRuntime()
    try:
        took = await floor._exit(cast(Any, runtime), "sandbox", api_pb2.PodSandboxConfig())
    finally:
        runtime.process.kill()
        runtime.process.wait()
    assert took > 0
    assert runtime.calls[0] == "CreateContainer" and runtime.calls[-1] == "RemoveContainer"
