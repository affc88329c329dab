"""What the runtime contract and other tests of runtimes share: a runtime with an image, and pods to run in it."""

import asyncio
import itertools
import os
import re
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from shared.cri.interface import Message, Runtime
from shared.model.runtime import Container, RuntimePod
from tests.support.waits.deadline import WAIT_SECONDS
from tools.oci_image import BUSYBOX_IMAGE

_uids = itertools.count(1)


class World(ABC):
    """A runtime, an image it has, and the outside hand that kills processes."""

    runtime: Runtime
    image: str
    directory: Path

    @abstractmethod
    def kill(self, container: Container) -> None:
        """SIGKILL the container's first process."""

    async def wait_for_trap(self, container: Container) -> None:
        """Wait until the container's shell handles SIGTERM: a real one runs before it has set its trap."""
        return  # a fake runtime has no shell

    def leave_task(self, container_id: str) -> None:
        """Give a created container a task behind the back of CRI, as a StartContainer does that is cut off."""
        raise NotImplementedError

    def new_pod(self, *, attempt: int = 0) -> Message:
        """The sandbox configuration of a pod never seen before."""
        uid = f"uid-{time.time_ns():x}-{next(_uids)}"
        logs = self.directory / f"rec_pod_{uid}"
        logs.mkdir()
        return {
            "metadata": {"name": "pod", "namespace": "rec", "uid": uid, **({"attempt": attempt} if attempt else {})},
            "hostname": "pod",
            "log_directory": str(logs),
            "labels": {
                "io.kubernetes.pod.name": "pod",
                "io.kubernetes.pod.namespace": "rec",
                "io.kubernetes.pod.uid": uid,
            },
            "linux": {"security_context": {"namespace_options": {"pid": "CONTAINER"}}},
        }

    def container(self, pod: Message, *, name: str = "c", attempt: int = 0, command: str = "sleep 1000") -> Message:
        """A container of that pod, with the annotations and the termination file the agent gives it."""
        (Path(pod["log_directory"]) / name).mkdir(exist_ok=True)
        message = self.termination_file(pod, name)
        message.touch()
        return {
            "metadata": {"name": name, **({"attempt": attempt} if attempt else {})},
            "image": {"image": self.image},
            "command": ["sh", "-c", f"trap 'exit 7' TERM; {command} & wait $!"],
            "mounts": [{"container_path": "/dev/termination-log", "host_path": str(message)}],
            "labels": {**pod["labels"], "io.kubernetes.container.name": name},
            "annotations": {
                "io.kubernetes.container.hash": "8e45cbd0",
                "io.kubernetes.container.restartCount": str(attempt),
                "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
                "io.kubernetes.container.terminationMessagePolicy": "File",
            },
            "log_path": f"{name}/{attempt}.log",
            "linux": {"security_context": {"namespace_options": {"pid": "CONTAINER"}}},
        }

    def termination_file(self, pod: Message, name: str = "c") -> Path:
        """The host side of the container's termination message."""
        return Path(pod["log_directory"]) / f"{name}.termination"


class RealWorld(World):
    """A runtime whose containers have processes on this machine."""

    image = BUSYBOX_IMAGE

    def __init__(self, runtime: Runtime, directory: Path) -> None:
        self.runtime, self.directory = runtime, directory

    def kill(self, container: Container) -> None:
        os.kill(container.pid, signal.SIGKILL)

    async def wait_for_trap(self, container: Container) -> None:
        def caught() -> int:
            status = Path(f"/proc/{container.pid}/status").read_text()
            if "\trunc:[2:INIT]\n" in status:
                return 0  # it has yet to become the shell, and a program in Go handles every signal
            return int(re.search(r"^SigCgt:\s*(\w+)$", status, re.M)[1], 16)  # type: ignore[index]

        deadline = time.monotonic() + WAIT_SECONDS
        while not caught() >> (signal.SIGTERM - 1) & 1:
            assert time.monotonic() < deadline, f"process {container.pid} does not handle SIGTERM"
            await asyncio.sleep(0.01)


async def started(world: World, pod: Message, config: Message | None = None) -> tuple[str, str]:
    """A running container in a new sandbox: (sandbox id, container id)."""
    sandbox = await world.runtime.run_pod_sandbox(pod, "")
    container = await world.runtime.create_container(sandbox, config or world.container(pod), pod)
    await world.runtime.start_container(container)
    return sandbox, container


async def look(world: World, pod: Message) -> RuntimePod:
    uid = pod["metadata"]["uid"]
    return (await world.runtime.observe(uid))[uid]


async def until(world: World, pod: Message, holds: Callable[[RuntimePod], bool]) -> RuntimePod:
    """Look until it holds: a runtime without events shows an exit only when asked."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds(seen := await look(world, pod)):
        assert time.monotonic() < deadline, f"never came true, last seen: {seen}"
        await asyncio.sleep(0.01)
    return seen
