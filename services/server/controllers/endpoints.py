"""Answers the requests for lists, configz, health and logs: reads the streams, asks the core and encodes the answer."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
from aiohttp import web

from bus.messages.sources import DesiredPod
from services.server.adapters.directory_watch import DirectoryWatch
from services.server.adapters.log_opening import LogFile
from services.server.adapters.log_stream import LogStream, begin, stream_log
from services.server.adapters.plain_answer import plain
from services.server.controllers.pod_streams import PodStreams
from services.server.controllers.request_handler import EndpointHandler
from services.server.core.go_text import parse_query, quote
from services.server.core.logs import log_source
from services.server.core.logs.log_format import LogFilter
from services.server.core.logs.log_query import LogQuery, LogQueryError, check_stream_gate, parse_log_query
from services.server.core.logs.log_source import LogSource, LogsUnavailableError
from services.server.core.pages.health import Check, answer_all, answer_one
from services.server.core.pods.pod_lists import find_pod, pod_list, running_pod_list
from services.server.core.routes import Endpoint
from shared.config.effective import EffectiveConfig
from shared.model.objects import Object
from shared.time.clock import Clock


def health_handler(checks: Callable[[], tuple[Check, ...]]) -> EndpointHandler:
    """Return the handler of `/healthz` and `/healthz/<name>` over these checks."""

    async def handle(request: web.BaseRequest, parameters: tuple[str, ...]) -> web.Response:
        results = checks()
        if parameters:
            answer = answer_one(next(check for check in results if check.name == parameters[0]))
        else:
            answer = answer_all(results, parse_query(request.rel_url.raw_query_string))
        response = plain(answer.status, answer.body)
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    return handle


class Endpoints:
    """Answers the requests that need streams and log files."""

    def __init__(
        self,
        config: EffectiveConfig,
        streams: PodStreams,
        clock: Clock,
        threads: ThreadPoolExecutor,
        watch: DirectoryWatch,
        document: Callable[[], Object],
    ) -> None:
        self._document = document  # the effective KubeletConfiguration in force
        self._config, self._streams, self._clock = config, streams, clock
        self._threads, self._watch = threads, watch
        self._split_streams = config.feature_gates.get("PodLogsQuerySplitStreams", False)
        self.wakers = streams.wakers

    @property
    def handlers(self) -> dict[Endpoint, EndpointHandler]:
        """The handler of each endpoint; that of health is added elsewhere."""
        return {
            Endpoint.PODS: self.pods,
            Endpoint.RUNNING_PODS: self.running_pods,
            Endpoint.CONFIGZ: self.configz,
            Endpoint.CONTAINER_LOGS: self.container_logs,
        }

    async def pods(self, _request: web.BaseRequest, _parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `GET /pods`."""
        streams = self._streams
        return _json(pod_list(streams.desired.state.values(), streams.status.state, streams.api_statuses.state))

    async def running_pods(self, _request: web.BaseRequest, _parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `GET /runningpods/`."""
        return _json(running_pod_list(self._streams.runtime.state.values()))

    async def configz(self, _request: web.BaseRequest, _parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `/configz` with the effective KubeletConfiguration, defaults included (config.md 2.4)."""
        kind = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
        response = _json({"kubeletconfig": {**kind, **self._document()}})
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    async def container_logs(self, request: web.BaseRequest, parameters: tuple[str, ...]) -> web.StreamResponse:
        """Answer `GET /containerLogs/{namespace}/{pod}/{container}` (server.md 10)."""
        namespace, pod_name, container = parameters
        try:
            query = parse_log_query(request.rel_url.raw_query_string)
            desired = find_pod(self._streams.desired.state.values(), namespace, pod_name)
            if desired is None:
                return plain(404, f"pod {quote(pod_name)} does not exist")
            if not log_source.has_container(desired.pod, container):
                return plain(404, f"container {quote(container)} not found in pod {quote(pod_name)}")
            check_stream_gate(query, split_streams=self._split_streams)
            status = self._streams.status_of(desired)
            source = log_source.choose_instance(pod_name, container, status, previous=query.previous)
        except LogQueryError as refused:
            return plain(refused.status, str(refused))
        except LogsUnavailableError as unavailable:
            return plain(400, str(unavailable))
        log = self._log_file(desired, container, source)
        if log is None:
            response = await begin(request)
            await response.write(f"unable to retrieve container logs for {source.container_id}".encode())
            await response.write_eof()
            return response
        return await self._stream(request, desired, source, query, log)

    async def _stream(
        self, request: web.BaseRequest, desired: DesiredPod, source: LogSource, query: LogQuery, log: LogFile
    ) -> web.StreamResponse:
        runtime = self._streams.runtime

        def running() -> bool:
            reported = log_source.find_container(runtime.state.get(desired.uid), source.bare_id)
            return log_source.still_running(source, reported, self._streams.status_of(desired), stale=runtime.stale)

        wanted = LogFilter(
            timestamps=query.timestamps,
            since=query.since(self._clock.wall()),
            lines=None if query.follow else query.tail_lines,
            limit_bytes=query.limit_bytes,
            stream=query.stream,
        )
        wake = asyncio.Event()
        self.wakers.add(desired.uid, wake)
        try:
            stream = LogStream(log, wanted, query.tail_lines, query.follow, running, wake)
            return await stream_log(request, stream, self._threads, self._watch)
        finally:
            self.wakers.discard(desired.uid, wake)

    def _log_file(self, desired: DesiredPod, container: str, source: LogSource) -> LogFile | None:
        """Return the log file that the runtime reports. Where the runtime was not observed, use the path of the naming
        rule if that file exists."""
        metadata = desired.pod.get("metadata", {})
        pod_directory = f"{metadata.get('namespace')}_{metadata.get('name')}_{desired.uid}"
        reported = log_source.find_container(self._streams.runtime.state.get(desired.uid), source.bare_id)
        if reported is not None and reported.log_path:
            return LogFile(reported.log_path, "" if source.by_docker else pod_directory)
        path = Path(self._config.pod_logs_dir) / pod_directory / container / f"{source.attempt}.log"
        return LogFile(str(path), pod_directory) if path.exists() else None


def _json(document: Object) -> web.Response:
    return web.Response(body=orjson.dumps(document) + b"\n", headers={"Content-Type": "application/json"})
