"""Builds server: followed streams, handlers, health checks, reviews and listeners, and connects them."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

from services.frame.container_runtime import container_runtime
from services.frame.launch import Context
from services.server.adapters.directory_watch import DirectoryWatch
from services.server.adapters.listener import Listener
from services.server.controllers.checkpoint_endpoint import CheckpointEndpoint
from services.server.controllers.debug_endpoints import DebugEndpoints
from services.server.controllers.endpoints import Endpoints, health_handler
from services.server.controllers.explanations import Explanations
from services.server.controllers.handlers import join_handlers
from services.server.controllers.health_checks import HealthChecks
from services.server.controllers.health_metrics import BeatMetrics, CheckMetrics
from services.server.controllers.http_metrics import HttpMetrics
from services.server.controllers.listeners import Listeners, main_served
from services.server.controllers.metrics_endpoints import MetricsEndpoints
from services.server.controllers.node_page import NodePage
from services.server.controllers.pod_metrics import PodMetrics
from services.server.controllers.pod_resources import PodResources
from services.server.controllers.pod_streams import PodStreams
from services.server.controllers.pods_api import PodsApi
from services.server.controllers.request_handler import EndpointHandler
from services.server.controllers.reviews import Reviews
from services.server.controllers.runtime_metrics import RuntimeMetrics
from services.server.controllers.stream_endpoints import StreamEndpoints
from services.server.controllers.system_logs import SystemLogs
from services.server.controllers.usage_endpoints import UsageEndpoints
from services.server.controllers.zpages_endpoints import ZPagesEndpoints
from services.server.core.routes import Endpoint, handler_paths
from shared.config.gate_releases import enabled
from shared.cri.interface import Runtime

_MAX_LOG_THREADS = 8  # log files that are read at the same time
# After the start, for which a request waits for the pods; then it is answered with what is known.
_MAX_PODS_WAIT_SECONDS = 3.0


class ServerService:
    """The parts and their connections. The frame calls `stop_listening` and `drain` at a hand-over."""

    def __init__(self, context: Context, runtime: Runtime) -> None:
        config, bus, clock = context.config, context.bus, context.clock
        self._runtime = runtime
        self._health = HealthChecks(context)
        self._watch = DirectoryWatch()
        self._threads = ThreadPoolExecutor(_MAX_LOG_THREADS, thread_name_prefix="logs")
        self._streams = PodStreams(bus, joins_cluster=config.joins_cluster)
        self.endpoints = Endpoints(
            config, self._streams, clock, self._threads, self._watch, lambda: context.newest_config.document
        )
        self._stream_endpoints = StreamEndpoints(self._streams, runtime, context.metrics)
        PodMetrics(context.metrics, self._streams, config, lambda: context.newest_config.feature_gates)
        self._metrics = MetricsEndpoints(context, self._streams)
        self._checks = CheckMetrics(context.metrics, bus)
        BeatMetrics(context.metrics, bus, clock)
        self.served = main_served(config, self._health.names)
        self._zpages = ZPagesEndpoints(
            lambda: context.newest_config.given_flags, clock, handler_paths(self.served), config.emulated_version
        )
        from_runtime = enabled(config.feature_gates, "PodAndContainerStatsFromCRI")
        reported = RuntimeMetrics(runtime, clock, self._streams.runtime.state.values) if from_runtime else None
        self._usage = UsageEndpoints(bus, config.node_name, reported)
        self._checkpoint = CheckpointEndpoint(self._streams, runtime, clock, config.root_dir)
        self._pod_resources = PodResources(bus, self._streams, clock, context.metrics, config.root_dir)
        self._pods_api = (
            PodsApi(bus, self._streams, clock, context.metrics, config.root_dir)
            if enabled(config.feature_gates, "PodsAPI")
            else None
        )
        self._system_logs = SystemLogs(self._threads, queries=config.enable_system_log_query)
        self._explanations = Explanations(config, clock, self._threads)
        self.page = NodePage(context, self._streams)
        self._debugging = DebugEndpoints(bus, clock, context.debugging)
        self._reviews = Reviews(bus, clock, config)
        context.resumption.subscribe(lambda _: self._reviews.forget())
        self._listeners = Listeners(config, self._health, self._reviews, HttpMetrics(context.metrics), context.tracer)

    @property
    def listeners(self) -> dict[str, Listener]:
        """The open listeners by name: main, read-only, local, page, healthz."""
        return self._listeners.by_name

    @property
    def opened(self) -> asyncio.Event:
        """Set once the main and the read-only listener are open."""
        return self._listeners.opened

    async def run(self) -> None:
        """Serve until cancelled. Raise OperatorError when a listener other than health's cannot be opened."""
        async with AsyncExitStack() as stack:
            stack.callback(self._threads.shutdown, wait=False, cancel_futures=True)
            await stack.enter_async_context(self._watch)
            stack.push_async_callback(self._runtime.close)
            stack.push_async_callback(self._reviews.close)
            stack.push_async_callback(self._listeners.close)
            stack.push_async_callback(self._close_sockets)
            stack.callback(self.page.close)
            waiting = asyncio.get_running_loop().call_later(_MAX_PODS_WAIT_SECONDS, self._streams.known.set)
            stack.callback(waiting.cancel)
            tls = await self._listeners.open(self.handlers)
            try:
                async with asyncio.TaskGroup() as tasks:
                    self._health.start(tasks)
                    self.page.start(tasks)
                    if tls is not None:
                        tasks.create_task(tls.follow_files(self._watch), name="tls-files")
                    self._listeners.start(tasks, self.handlers)
                    self._pod_resources.start(tasks)
                    if self._pods_api is not None:
                        self._pods_api.start(tasks)
            except ExceptionGroup as group:
                raise group.exceptions[0] from group

    async def stop_listening(self) -> None:
        """Release the ports and the sockets for the successor; open requests and streams of HTTP stay open."""
        self.page.close()
        await self._close_sockets()
        await self._listeners.stop_listening()

    async def _close_sockets(self) -> None:
        await self._pod_resources.close()
        if self._pods_api is not None:
            await self._pods_api.close()

    async def drain(self) -> None:
        """Wait for the open requests and streams, for a bounded time."""
        await self._listeners.drain()

    @property
    def handlers(self) -> dict[Endpoint, EndpointHandler]:
        """Return the handlers by endpoint."""
        need_pods = self.endpoints, self._stream_endpoints, self._metrics, self._usage, self._checkpoint
        health = health_handler(lambda: self._checks.count(self._health.checks()))
        others = join_handlers(
            need_pods,
            (self._checks, self._zpages, self._system_logs, self._debugging, self._explanations, self.page),
            self._streams.known,
        )
        return {**others, Endpoint.HEALTHZ: health}


def build(context: Context) -> ServerService:
    """Return the service over the configured runtime."""
    return ServerService(context, container_runtime(context, pids=False))
