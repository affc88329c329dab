"""podsync on the in-memory bus with a fake runtime: its neighbours are played by the test."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from bus.interface import Change
from bus.messages.pleg import NodeObserved
from bus.messages.podsync import PodStatus
from bus.messages.sources import DesiredPod
from bus.messages.streams import (
    CLAIMS_PREPARED,
    DEVICES_RESOURCES,
    NODE_OBJECT,
    NODE_OBSERVED,
    PODS_ADMITTED,
    PODS_API_STATUS,
    PODS_DESIRED,
    PODS_STATUS,
    PODS_VOLUMES,
    PROBES_RESULTS,
    RUNTIME_PODS,
    VOLUMES_MOUNTED,
    events_of,
)
from services.frame.launch import Context
from services.podsync.service import PodSyncService
from shared.config.effective import EffectiveConfig
from shared.metrics.registry import Registry, Series
from tests.fakes.memory_bus import MemoryNetwork
from tests.fakes.runtime import FakeRuntime
from tests.support.waits.deadline import WAIT_SECONDS

S = TypeVar("S", bound="Stage")


class Stage:
    """The neighbours' streams, podsync itself, and what the server would see of it."""

    def __init__(
        self,
        directory: Path,
        runtime: FakeRuntime,
        on_change: Callable[[Change[Any]], None] | None = None,
        **config: Any,
    ) -> None:
        self.network, self.runtime = MemoryNetwork(), runtime
        runtime.clock = self.network.clock  # one time for what is observed and for what is done
        self.config = EffectiveConfig(
            node_name="node1",
            root_dir=str(directory / "root"),
            run_dir=str(directory / "run"),
            log_dir=str(directory / "log"),
            cert_dir=str(directory / "pki"),
            **{"cgroups_per_qos": False, "pod_logs_dir": str(directory / "logs" / "pods"), **config},
        )
        self.system_bus = f"unix:path={directory}/no-bus"  # of logind
        self.buses = {name: self.network.bus(name) for name in ("sources", "pleg", "volume", "server")}
        self.desired = self.buses["sources"].own(PODS_DESIRED)
        self.api_statuses = self.buses["sources"].own(PODS_API_STATUS)
        self.node_object = self.buses["sources"].own(NODE_OBJECT)
        self.seen = self.buses["pleg"].own(RUNTIME_PODS)
        self.probed = self.buses["pleg"].own(PROBES_RESULTS)
        self.node = self.buses["pleg"].own(NODE_OBSERVED)
        self.mounted = self.buses["volume"].own(VOLUMES_MOUNTED)
        self.claims = self.buses["volume"].own(CLAIMS_PREPARED)
        self.buses["volume"].own(DEVICES_RESOURCES).mark_complete()  # no device plugin has ever registered
        self.admitted = self.buses["server"].follow(PODS_ADMITTED, on_change)
        self.volumes = self.buses["server"].follow(PODS_VOLUMES, on_change)
        self.statuses = self.buses["server"].follow(PODS_STATUS)
        self.events = self.buses["server"].follow(events_of("podsync"))
        self.service: PodSyncService | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """The other services without anything to report, and a runtime that is ready."""
        for bus in self.buses.values():
            await bus.start()
        for stream in (self.desired, self.seen, self.mounted, self.claims):
            stream.mark_complete()
        ready = NodeObserved(observed_at=1.0, runtime_reachable=True, runtime_ready=True, network_ready=True)
        self.node.put("node", ready)
        await self.start()

    async def start(self) -> None:
        """Start podsync again."""
        bus = self.network.bus("podsync")
        self.metrics = Registry("podsync")
        context = Context("podsync", self.config, bus, self.network.clock, asyncio.Event(), metrics=self.metrics)
        self.service = PodSyncService(context, self.runtime, self.system_bus)
        await bus.start()
        self._task = asyncio.create_task(self.service.run())
        await self.network.settle()

    @property
    def podsync(self) -> PodSyncService:
        """Return the service of the process that runs now."""
        assert self.service is not None
        return self.service

    async def restart(self) -> None:
        """End podsync as SIGKILL does, and start it again."""
        await self.kill()
        await self.start()

    async def kill(self) -> None:
        """SIGKILL of podsync, as far as one process can play it."""
        self.network.kill("podsync")
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def want(self, pod: dict[str, Any], source: str = "file") -> str:
        """Put the pod on `pods.desired`; returns its UID."""
        uid = str(pod["metadata"]["uid"])
        self.desired.put(uid, DesiredPod(uid=uid, source=source, pod=pod))
        return uid

    async def run_pod(self, pod: dict[str, Any], source: str = "file") -> str:
        """Put the pod on `pods.desired`; returns its UID once it runs."""
        uid = self.want(pod, source)
        await self.until(lambda: self.running(uid))
        return uid

    def running(self, uid: str) -> bool:
        """Return whether the status shows that the pod runs and its first container is ready."""
        return self.status(uid).get("phase") == "Running" and self.status(uid)["containerStatuses"][0]["ready"]

    def counted(self, name: str) -> Series:
        """The series of a metric of the present process."""
        return next(series for family, series in self.metrics.collect() if family.name == name)

    def status(self, uid: str) -> dict[str, Any]:
        """The newest status the server has of the pod, {} for none."""
        known: PodStatus | None = self.statuses.state.get(uid)
        return known.status if known else {}

    async def until(self, condition: Callable[[], object]) -> None:
        """Let everything run until the condition holds; saves take real threads, so this turns the loop."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                await self.network.settle()
                await asyncio.sleep(0.001)


def on_stage(directory: Path, runtime: FakeRuntime | None = None, **config: Any) -> AbstractAsyncContextManager[Stage]:
    """A stage that is open in the block, and cleared at its end."""
    return cleared(Stage(directory, runtime or FakeRuntime(images=["busybox:1"]), **config))


@asynccontextmanager
async def cleared(stage: S) -> AsyncIterator[S]:
    """Open the stage, and clear it at the end of the block."""
    await stage.open()
    try:
        yield stage
    finally:
        await stage.kill()
        for bus in stage.buses.values():
            await bus.stop()
