"""Another agent of the node: runs a static pod under a UID of its own while ours is stopped. What a Go kubelet does."""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import orjson

from shared.cri.interface import Message
from tests.simulation.runtime import SimulationRuntime
from tests.simulation.story import Story

STARTS_AFTER = 0.5  # seconds after it took the node
UID = "f00d"


class OtherAgent:
    """Of one run."""

    def __init__(self, runtime: SimulationRuntime, story: Story) -> None:
        self._runtime, self._story = runtime, story
        self._configs: tuple[Message, Message] | None = None

    def take_node(self, pod: str) -> None:
        """Our agent was stopped: end its instances of the pod with this full name (`p-node1_default`) and start one of
        its own, with the same UID each time."""
        self._story.add("other", f"takes the node, ends {pod} and starts its own")
        for uid, seen in self._runtime.pods().items():
            if f"{seen.name}_{seen.namespace}" != pod:
                continue
            for sandbox in seen.sandboxes:
                of_pod = self._runtime._sandboxes[sandbox.id].config
                for container in seen.containers:
                    if self._configs is None and container.sandbox_id == sandbox.id:
                        of_container = self._runtime._containers[container.id].config
                        self._configs = (_with_own_uid(of_pod, uid), _with_own_uid(of_container, uid))
                self._runtime._remove_sandbox(sandbox.id)
        self._later(STARTS_AFTER, self._start)

    def _start(self) -> None:
        assert self._configs is not None
        sandbox_config, config = self._configs
        sandbox = self._runtime._run_sandbox(sandbox_config, "")
        self._runtime._start(self._runtime._create(sandbox, config, sandbox_config))

    def _later(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, do, *args, context=contextvars.Context())


def _with_own_uid(config: Message, uid: str) -> Message:
    own: Message = orjson.loads(orjson.dumps(config).replace(uid.encode(), UID.encode()))
    metadata = {**own["metadata"]}
    metadata.pop("attempt", None)
    return {**own, "metadata": metadata}
