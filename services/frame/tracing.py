"""Sets up tracing of one process by the configuration: without `tracing` nothing is imported, measured or sent."""

import asyncio
import os

from shared.config.effective import EffectiveConfig
from shared.metrics.registry import Registry
from shared.tracing.span import Attributes
from shared.tracing.tracer import Tracer
from shared.version import release_tag

DEFAULT_ENDPOINT = "localhost:4317"


class Tracing:
    """Has the tracer of a process, and the task that exports its spans."""

    def __init__(self, service: str, config: EffectiveConfig, metrics: Registry) -> None:
        self.tracer, self._exporter = Tracer(), None
        self._task: asyncio.Task[None] | None = None
        if not config.tracing:
            return
        from shared.tracing.otlp import OtlpExporter  # 2 MiB that only a node with tracing needs

        resource: Attributes = {
            "service.name": "kubelet",
            "service.version": release_tag(config.emulated_version),
            "host.name": config.node_name,
            "k8s.node.name": config.node_name,
            "process.executable.name": service,
            "process.pid": os.getpid(),
        }
        self._exporter = OtlpExporter(config.tracing_endpoint or DEFAULT_ENDPOINT, resource, metrics, service)
        self.tracer = Tracer(self._exporter.take, config.tracing_rate)

    def start(self) -> None:
        """Begin to export."""
        if self._exporter is not None:
            self._task = asyncio.create_task(self._exporter.run(), name="tracing")

    async def close(self) -> None:
        """Export the spans that are left, for at most a second."""
        if self._task is not None:
            self._task.cancel()
        if self._exporter is not None:
            await self._exporter.close()
