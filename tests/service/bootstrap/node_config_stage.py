"""bootstrap's NodeConfig with the real sources and the API server's double, on virtual time; evaluation is real."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from bus.messages.bootstrap import NodeConfigStatus
from bus.messages.event import KubeEvent
from bus.messages.streams import NODE_CONFIG, events_of
from services.bootstrap.adapters import node_config_store
from services.bootstrap.controllers.node_config import NODE, NodeConfig
from services.bootstrap.controllers.node_config_choice import Choice, choose, reject_crashing, with_since
from services.bootstrap.core.node_config import Rejection
from services.frame.launch import Context
from shared.config.effective import EffectiveConfig
from shared.config.findings import ConfigurationRefusedError
from shared.metrics.registry import Registry
from tests.fakes.followed import FollowedStream
from tests.fakes.virtual_time import ended, pass_time, until
from tests.service.sources.cluster import NODE as NODE_NAME
from tests.service.sources.cluster import ClusterNode

NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
TRIAL = 600.0  # seconds
SYNC_INTERNAL_ERROR = "failed to sync: internal failure, see Kubelet log for details"
HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


class KilledError(BaseException):
    """The process was killed at a crash point."""


@dataclass
class Startup:
    """As `BootstrapStartup` shows itself: what config.json has outlives a kill, the choice does not."""

    config: EffectiveConfig
    choice: Choice | None = None
    generation: str = ""


class Stage:
    """One node. `begin` starts the agent or bootstrap alone, `kill` ends bootstrap."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.dynamic, self._patch = directory, directory / "dynamic", monkeypatch
        monkeypatch.setenv("BULKHEAD_HOME", str(directory))
        self.run_dir = directory / "run"
        (self.run_dir / "locks").mkdir(parents=True)
        self.cluster = ClusterNode(directory, dynamic_config_dir=str(self.dynamic))
        self.api, self.network = self.cluster.api, self.cluster.network
        self.local = directory / "kubelet.yaml"
        self.write_local()
        kubeconfig = directory / "kubeconfig"
        self.arguments = [
            *("--config", str(self.local), "--root-dir", str(directory / "root"), "--kubeconfig", str(kubeconfig)),
            *("--dynamic-config-dir", str(self.dynamic), "--feature-gates", "DynamicKubeletConfig=true"),
        ]
        self.startup: Startup | None = None
        self.kill_at = ""  # the crash point at which bootstrap is killed next
        monkeypatch.setattr(node_config_store, "crash_point", self._crash_point)
        bus = self.network.bus("status")
        self._statuses = FollowedStream(bus, NODE_CONFIG)
        self._events: FollowedStream[KubeEvent] = FollowedStream(bus, events_of("bootstrap"))
        self._bus = bus
        self._task: asyncio.Task[None] | None = None
        self.evaluations = 0
        self.metrics = Registry("bootstrap")

    # The cluster

    def write_local(self, **keys: Any) -> None:
        """Write the local configuration."""
        self.local.write_text(yaml.safe_dump({**HEAD, "maxPods": 50, **keys}))

    def offer(self, name: str, text: str | None = None, *, key: str = "kubelet", **keys: Any) -> str:
        """Create or replace a ConfigMap with these keys, or this text; its resourceVersion."""
        content = text if text is not None else yaml.safe_dump({**HEAD, **keys})
        made = self.api.put(f"{CONFIG_MAPS}/{name}", {"data": {key: content}})
        return str(made["metadata"]["resourceVersion"])

    def name(self, config_map: str | None, source: object = None) -> None:
        """Have the Node name the ConfigMap, or `source` as its configSource."""
        if config_map is not None:
            source = {"configMap": {"namespace": "default", "name": config_map, "kubeletConfigKey": "kubelet"}}
        spec = {} if source is None else {"configSource": source}
        self.api.put(f"{NODES}/{NODE_NAME}", {"spec": spec})

    # The agent

    async def begin(self) -> None:
        """Start sources, and bootstrap as at a start of the agent."""
        await self._bus.start()
        await self.cluster.start()
        await self.start_agent()

    async def start_agent(self) -> None:
        """bootstrap with a new supervisord: it evaluates everything."""
        config, choice = self._evaluate()
        self.startup = Startup(with_since(config, None, self.network.clock.monotonic()), choice)
        await self.start_bootstrap(choice)

    async def start_bootstrap(self, choice: Choice | None = None) -> None:
        """bootstrap alone: config.json is there, and nothing is evaluated unless the configuration was rejected."""
        assert self.startup is not None
        self.startup.choice = choice
        in_force = self.startup.config
        if choice is None and (rejection := reject_crashing(in_force, "")) is not None:
            config, choice = self._evaluate(in_force, rejection)
            self.startup = Startup(with_since(config, None, self.network.clock.monotonic()), choice)
        bus = self.network.bus("bootstrap")
        self.metrics = Registry("bootstrap")
        context = Context(
            "bootstrap", self.startup.config, bus, self.network.clock, asyncio.Event(), metrics=self.metrics
        )
        service = NodeConfig(context, self.startup, self._reload, bus.own(NODE_CONFIG))  # type: ignore[arg-type]
        await bus.start()
        self._task = asyncio.create_task(service.run())
        await self.network.settle()

    async def kill(self) -> None:
        """What is not on disk is gone."""
        assert self._task is not None
        try:
            await ended(self._task)
        except BaseExceptionGroup as errors:
            assert errors.subgroup(KilledError) is not None, errors
        self.network.kill("bootstrap")

    async def end(self) -> None:
        """End everything."""
        if self._task is not None:
            await self.kill()
        await self.cluster.kill()

    @property
    def is_killed(self) -> bool:
        """Whether bootstrap has reached the crash point."""
        return self._task is not None and self._task.done()

    def crashes(self, service: str, count: int) -> None:
        """Write the lock file of a service that was started so often, the last time now."""
        now = self.network.clock.monotonic()
        starts = [(now, 0.0)] * count
        record = {"pid": os.getpid(), "process": "", "supervisord": "", "starts": starts}
        (self.run_dir / "locks" / f"{service}.lock").write_text(json.dumps(record))

    def _evaluate(
        self, in_force: EffectiveConfig | None = None, rejection: Rejection | None = None
    ) -> tuple[EffectiveConfig, Choice | None]:
        self.evaluations += 1
        resolved, choice = choose(self.arguments, lambda resolved: resolved, in_force=in_force, rejection=rejection)
        return resolved.config, choice

    async def _reload(self) -> bool:
        assert self.startup is not None
        try:
            config, choice = self._evaluate(self.startup.config)
        except ConfigurationRefusedError:
            return False
        self.startup.config = with_since(config, self.startup.config, self.network.clock.monotonic())
        self.startup.choice = choice
        return True

    def _crash_point(self, name: str) -> None:
        if self.kill_at and name == self.kill_at:
            self.kill_at = ""
            raise KilledError

    # What is seen

    @property
    def max_pods(self) -> int:
        """Of the configuration in force."""
        assert self.startup is not None
        return self.startup.config.max_pods

    @property
    def status(self) -> NodeConfigStatus | None:
        """What status follows."""
        return self._statuses.state.get(NODE)

    @property
    def shown(self) -> tuple[str, str, str, str]:
        """Names of the assigned, the active and the last known good ConfigMap ("" = local), and the error."""
        status = self.status
        if status is None:
            return ("?", "?", "?", "?")
        sources = (status.assigned, status.active, status.last_known_good)
        assigned, active, good = (source.name if source else "" for source in sources)
        return assigned, active, good, status.error

    @property
    def messages(self) -> list[str]:
        """Of the events, in order."""
        return [event.message for event in self._events.state.values()]

    async def until(self, *shown: str, within: float = 60.0) -> None:
        """Let time pass until `shown` is this."""
        try:
            await until(self.network, lambda: self.shown == shown, within)
        except AssertionError:
            raise AssertionError(f"{self.shown} in place of {shown}") from None

    async def passes(self, seconds: float) -> None:
        """Let time pass."""
        await pass_time(self.network, seconds)

    def record(self, name: str) -> Path:
        """The file of a record of the store."""
        return self.dynamic / "store/meta" / name

    def checkpoint(self, name: str = "kubelet") -> Path:
        """The newest file of a checkpoint with this key."""
        files = (self.dynamic / "store/checkpoints").glob(f"*/*/{name}")
        return max(files, key=lambda file: int(file.parent.name))

    def series(self, family: str) -> dict[Any, float]:
        """The series of a metric."""
        instrument = vars(self.metrics)["_instruments"][family]
        return {labels: values[0] for labels, values in instrument.series.items()}


Make = Callable[[], Stage]


@asynccontextmanager
async def node(make: Make, names: str | None = None, **offered: Any) -> AsyncIterator[Stage]:
    """A node that runs, and whose Node names this ConfigMap, with these keys."""
    stage = make()
    stage.name(names)
    if names and offered:
        stage.offer(names, **offered)
    await stage.begin()
    try:
        yield stage
    finally:
        await stage.end()
