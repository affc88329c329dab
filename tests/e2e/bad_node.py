"""An agent on a private containerd behind a proxy that misbehaves, and what tests ask of it."""

from typing import Any

from bus.interface import Change, Put
from bus.manifest import new_manifest
from bus.messages.streams import RUNTIME_PODS
from bus.process_bus import ProcessBus
from shared.model.objects import Object
from shared.model.runtime import ContainerState, RuntimePod, SandboxState
from tests.fakes.cri_proxy import CriProxy, Rule
from tests.fakes.runtime_leftovers import network_namespace
from tests.support.agents.agent import NODE
from tests.support.agents.behaviour import container, pod_of, status_of
from tests.support.agents.world import World
from tests.support.runtime.containerd import PrivateContainerd
from tests.support.waits.deadline import SLOWNESS, WAIT_SECONDS

REQUEST_SECONDS = round(6 * SLOWNESS)  # runtimeRequestTimeout; a call that is delayed by 2 s stays below it


class BadNode(World):
    """An agent whose runtime is the proxy; `runtime` is the real one."""

    def __init__(self, containerd: PrivateContainerd, proxy: CriProxy) -> None:
        config = {"containerRuntimeEndpoint": proxy.endpoint, "runtimeRequestTimeout": f"{REQUEST_SECONDS}s"}
        super().__init__(containerd=containerd, config=config)
        self.containerd, self.proxy = containerd, proxy
        self.namespaces: set[str] = set()
        self.put_so_far: set[str] = set()

    def put(self, name: str, *containers: Object, **spec: Any) -> None:
        """Make this static pod."""
        self.put_so_far.add(name)
        self.put_manifest(name, pod_of(name, *(containers or (container("c"),)), **spec))

    def at(self, name: str) -> str:
        """What the runtime calls it."""
        return f"{name}-{NODE}"

    async def runs(self, name: str, seconds: float = WAIT_SECONDS) -> RuntimePod:
        """Wait until the agent shows it and the runtime reports one container in one sandbox."""

        async def running() -> RuntimePod | None:
            shown, pod = await self.pod(name), await self.runtime_pod(name)
            if shown is None or pod is None or "running" not in status_of(shown, "c").get("state", {}):
                return None
            alive = [c for c in pod.containers if c.state is not ContainerState.EXITED]
            ready = [s for s in pod.sandboxes if s.state is SandboxState.READY]
            return pod if len(alive) == len(ready) == 1 and alive[0].state is ContainerState.RUNNING else None

        pod = await self.wait_for(running, f"{name} to run as one container in one sandbox", seconds)
        for box in pod.sandboxes:
            self.namespaces |= network_namespace(box.pid)
        return pod

    async def is_observed(self, pod: RuntimePod) -> None:
        """Wait until pleg has published each container of the pod: what it never saw cannot get lost."""
        containers: dict[str, set[str]] = {}

        def on_pod(change: Change[RuntimePod]) -> None:
            if isinstance(change, Put):
                containers[change.key] = {container.id for container in change.value.containers}

        bus = ProcessBus("observer", new_manifest(self.home.run_dir))
        bus.follow(RUNTIME_PODS, on_pod)
        await bus.start()
        try:
            ids = {container.id for container in pod.containers}
            await self.wait_for(lambda: ids <= containers.get(pod.uid, set()), f"pleg to observe pod {pod.uid}")
        finally:
            await bus.stop()

    async def shows(self, name: str, reason: str, text: str = "", seconds: float = WAIT_SECONDS) -> Object:
        """Wait until its container waits for this reason."""

        async def shown() -> Object | None:
            pod = await self.pod(name)
            waiting = status_of(pod or {}, "c").get("state", {}).get("waiting") or {}
            return waiting if waiting.get("reason") == reason and text in waiting.get("message", "") else None

        return await self.wait_for(shown, f"{name} to wait for {reason}", seconds)

    async def ends(self, name: str, seconds: float = WAIT_SECONDS) -> None:
        """Take the manifest away and wait until nothing of it runs."""
        self.remove_manifest(name)
        await self.wait_gone(name, seconds)

    def rule(self, kind: str, method: str, *words: Any, pod: str, **further: Any) -> Rule:
        """Let the proxy misbehave to this pod."""
        rule: Rule = getattr(self.proxy, kind)(method, *words, pod=self.at(pod), **further)
        return rule
