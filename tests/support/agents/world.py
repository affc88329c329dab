"""An agent and its pods, for tests/process and tests/e2e: writes manifests, reads the ports and the runtime."""

import asyncio
import http.client
import json
import urllib.error
import urllib.request
from typing import Any

from shared.cri.client import CriRuntime
from shared.cri.interface import RuntimeCallError
from shared.model.objects import Object
from shared.model.runtime import ContainerState, RuntimePod, SandboxState
from tests.support.agents.agent import NODE, Agent
from tests.support.agents.conditions import is_ready
from tests.support.waits.deadline import WAIT_SECONDS
from tools.oci_image import BUSYBOX_IMAGE

# The script of a container for attach. containerd attaches to the input before the output: what the process returns
# before its first tick may be lost.
TICK_AND_RETURN_INPUT = "while :; do echo tick; sleep 0.2; done & exec cat"


class World(Agent):
    """A whole node agent without pods, started by `async with World() as world:`; the arguments are those of Agent."""

    _runtime: CriRuntime | None = None

    def put_manifest(self, name: str, manifest: Object | str) -> None:
        """Write a manifest into the static pod directory, atomically; a text is written as it is."""
        scratch = self.home.path / "scratch"
        scratch.write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
        scratch.rename(self.home.manifests / f"{name}.yaml")

    def remove_manifest(self, name: str) -> None:
        """Remove the manifest."""
        (self.home.manifests / f"{name}.yaml").unlink()

    async def pods(self) -> list[Object]:
        """Return the pods that the read-only port lists; none while it does not answer."""
        return list((await self.get_json("/pods") or {}).get("items") or [])

    async def pod(self, name: str) -> Object | None:
        """Return the static pod of this manifest name, as the read-only port shows it."""
        found = [pod for pod in await self.pods() if pod["metadata"]["name"] == f"{name}-{NODE}"]
        return found[0] if found else None

    async def wait_served(self, *names: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the read-only port shows these static pods as Ready: server then knows their containers, which it
        gets from other processes than the runtime."""

        async def served() -> bool:
            ready = {pod["metadata"]["name"] for pod in await self.pods() if is_ready(pod)}
            return ready >= {f"{name}-{NODE}" for name in names}

        await self.wait_for(served, f"pods {', '.join(names)} to be ready on the read-only port", seconds)

    async def get(self, path: str) -> bytes:
        """Return the answer to GET from the read-only port. Raises urllib.error.URLError."""
        return await asyncio.to_thread(_read, f"http://127.0.0.1:{self._read_only_port}{path}")

    async def get_json(self, path: str) -> Any:
        """Return the answer to GET from the read-only port; None while it does not answer, or not to the end."""
        try:
            return json.loads(await self.get(path))
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ValueError):
            return None

    @property
    def runtime(self) -> CriRuntime:
        """Return a client of the runtime itself, which bypasses the agent."""
        if self._runtime is None:
            self._runtime = CriRuntime(self.endpoint, request_timeout=60.0)
        return self._runtime

    async def runtime_pod(self, name: str) -> RuntimePod | None:
        """Return the static pod of this manifest name, as the runtime has it."""
        uids = await self.runtime.uids_of("default", f"{name}-{NODE}")
        # A list of everything on a node that many tests share would cost the runtime more than what they test.
        found = await self.runtime.observe(next(iter(uids)) if len(uids) == 1 else None)
        return next((pod for pod in found.values() if pod.name == f"{name}-{NODE}"), None)

    async def wait_running(self, name: str, seconds: float = WAIT_SECONDS) -> RuntimePod:
        """Wait until the newest container of the static pod runs, as the runtime reports it."""

        async def running() -> RuntimePod | None:
            try:
                pod = await self.runtime_pod(name)
            except RuntimeCallError:
                return None  # a killed runtime is on its way back
            good = pod is not None and pod.containers and pod.containers[0].state is ContainerState.RUNNING
            return pod if good else None

        return await self.wait_for(running, f"pod {name} to run", seconds)

    async def wait_gone(self, name: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait until no container of the static pod is left and no sandbox of it is ready."""

        async def gone() -> bool:
            pod = await self.runtime_pod(name)
            return pod is None or not (
                pod.containers or [box for box in pod.sandboxes if box.state is SandboxState.READY]
            )

        await self.wait_for(gone, f"pod {name} to be gone", seconds)

    async def _take_down(self, *, failed: bool) -> None:
        if self._runtime is not None:
            await self._runtime.close()
        await super()._take_down(failed=failed)


class ExecutedWorld(World):
    """A World whose supervisord is executed as that of a user is, for what looks at the start or at memory."""

    preloaded = False


def busybox_pod(name: str, *command: str, grace: int = 1, **spec: Any) -> Object:
    """Return a pod with one busybox container `main`; `spec` adds to the pod's spec."""
    container = {
        "name": "main",
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command) or ["sleep", "1000000"],
    }
    body = {"terminationGracePeriodSeconds": grace, "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": body}


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=WAIT_SECONDS / 6) as answer:
        return bytes(answer.read())
