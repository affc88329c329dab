"""Follows the configuration that the Node names: performs the steps of `core.node_config`, one after the other.

A step that fails is reported in status.config and in the log, and is tried again; it never changes what is in force.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from asyncinotify import Inotify, Mask

from bus.interface import Change, Deleted, NoAnswerError, OwnedStream, Put, RequestRefusedError
from bus.messages.bootstrap import NodeConfigStatus
from bus.messages.event import KubeEvent
from bus.messages.sources import ChangedObject, FoundObject, GetObject, NodeObject
from bus.messages.streams import NODE_OBJECT, OBJECTS_CHANGED, events_of
from bus.stream import EventRecorder
from services.bootstrap.adapters.node_config_store import NodeConfigStore
from services.bootstrap.controllers.node_config_choice import service_starts
from services.bootstrap.controllers.node_config_metrics import NodeConfigMetrics
from services.bootstrap.controllers.startup import BootstrapStartup
from services.bootstrap.core.config_source import (
    DOWNLOAD_ERROR,
    INTERNAL_ERROR,
    ConfigSourceError,
    SourceReference,
    config_map_files,
    referenced_source,
)
from services.bootstrap.core.node_config import (
    Checkpoints,
    Clear,
    Download,
    Evaluate,
    InForce,
    Promote,
    Reject,
    Rejection,
    Situation,
    Step,
    Wait,
    next_step,
    trial_left,
)
from services.frame.launch import Context
from shared.model.config_source import ConfigSource
from shared.model.frozen_copy import replace

log = logging.getLogger(__name__)

NODE = "node"
CONFIG_MAP = "NodeConfigMap"  # the kind that sources reads for us
RETRY_SECONDS = 10.0  # after a step that failed, as in the kubelet
_SETTLE_SECONDS = 0.1  # between two reads of the starts of services
_TROUBLE = "node config"
_SYNC_ERROR = "failed to sync: {}"


class NodeConfig:
    """Follows the Node's configuration. `reload` brings the configuration on disk into force, and returns whether that
    succeeded; `status` is our stream."""

    def __init__(
        self,
        context: Context,
        startup: BootstrapStartup,
        reload: Callable[[], Awaitable[bool]],
        status: OwnedStream[NodeConfigStatus],
    ) -> None:
        self._context, self._startup, self._reload, self._status = context, startup, reload, status
        self._store = NodeConfigStore(context.config)
        self._events = EventRecorder(context.bus.own(events_of("bootstrap")), context.clock)
        self._metrics = NodeConfigMetrics(context)
        context.bus.follow(NODE_OBJECT, self._on_node)
        context.bus.follow(OBJECTS_CHANGED, self._on_object)
        self._wake = asyncio.Event()
        self._checkpoints = Checkpoints()
        self._evaluated: Checkpoints | None = None
        self._is_refused = False  # the last evaluation brought no configuration into force
        self._is_synced = False  # the Node was read, and its spec can be used
        self._reference: SourceReference | None = None
        self._version = ""  # of the ConfigMap in the API server; "" = not known
        self._sync_error = ""
        self._failed_step: type[Step] | None = None  # whose failure `_sync_error` reports
        self._retry_at = 0.0

    def wake(self) -> None:
        """Look at the Node again, because the configuration was evaluated."""
        self._is_refused = False
        self._wake.set()

    async def run(self) -> None:
        """Run until cancelled."""
        await self._load()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_starts(), name="starts of services")
            tasks.create_task(self._follow(), name="configuration of the Node")

    async def _load(self) -> None:
        try:
            await asyncio.to_thread(self._store.prepare)
            self._checkpoints, _ = await asyncio.to_thread(self._store.load)
        except OSError as error:
            self._failed(INTERNAL_ERROR, f"{error.filename}: {error.strerror}")
            self._checkpoints = Checkpoints(is_damaged=True)
        if self._startup.choice is not None:
            self._checkpoints = self._evaluated = self._startup.choice.checkpoints

    async def _watch_starts(self) -> None:
        """Look again whenever a service starts: it writes its lock file."""
        try:
            with Inotify() as inotify:
                inotify.add_watch(Path(self._context.config.run_dir) / "locks", Mask.MODIFY)
                while True:
                    await inotify.get()
                    self._wake.set()
                    await asyncio.sleep(_SETTLE_SECONDS)
        except OSError as error:
            log.warning("crashes of services are not noticed: %s (raise fs.inotify.max_user_instances)", error)

    async def _follow(self) -> None:
        while True:
            self._wake.clear()
            step = next_step(await self._situation())
            if isinstance(step, Wait):
                self._publish()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(step.seconds):
                        await self._wake.wait()
                continue
            try:
                await self._perform(step)
            except ConfigSourceError as error:
                self._failed(error.error, str(error), step)
            except OSError as error:
                where = error.filename or self._context.config.dynamic_config_dir
                self._failed(INTERNAL_ERROR, f"{where}: {error.strerror}", step)
                if isinstance(step, Reject):  # the other steps wait for `retry_at`
                    await asyncio.sleep(RETRY_SECONDS)
            else:
                if type(step) is self._failed_step:
                    self._synced()

    async def _situation(self) -> Situation:
        config, checkpoints = self._startup.config, self._checkpoints
        in_force = InForce(config.config_source, config.config_source_since)
        starts: Mapping[str, tuple[float, ...]] = {}
        if trial_left(checkpoints, in_force, in_force.since) is not None:
            starts = await asyncio.to_thread(service_starts, config.run_dir, self._startup.generation)
        return Situation(
            now=self._context.clock.monotonic(),
            checkpoints=checkpoints,
            in_force=in_force,
            evaluated=self._evaluated,
            is_synced=self._is_synced,
            reference=self._reference,
            version=self._version,
            retry_at=self._retry_at,
            starts=starts,
        )

    async def _perform(self, step: Step) -> None:
        """Raises ConfigSourceError, OSError: it is tried again."""
        match step:
            case Reject(rejection):
                log.error("%s: %s", rejection.source.api_path, rejection.error)
                await self._save_rejection(rejection)
            case Download(reference):
                await self._download(reference)
                self._synced()
            case Clear():
                await asyncio.to_thread(self._store.assign, None)
                await asyncio.to_thread(self._store.promote, None)
                if self._checkpoints.assigned is not None:
                    self._record(None)
                self._checkpoints = Checkpoints(rejection=self._checkpoints.rejection)
                self._synced()
            case Promote(source):
                await asyncio.to_thread(self._store.promote, source)
                self._checkpoints = replace(self._checkpoints, last_known_good=source)
                log.info("the configuration that the Node names is the last known good one now")
            case Evaluate():
                self._publish()
                self._evaluated = self._checkpoints
                self._is_refused = not await self._reload()

    async def _download(self, reference: SourceReference) -> None:
        request = GetObject(kind=CONFIG_MAP, namespace=reference.namespace, name=reference.name)
        version_before = self._version
        try:
            found = await self._context.bus.ask("sources", request, FoundObject)
        except (NoAnswerError, RequestRefusedError) as error:
            raise ConfigSourceError(DOWNLOAD_ERROR, str(error)) from error
        if found.object is None:
            raise ConfigSourceError(DOWNLOAD_ERROR, found.error)
        source, files = config_map_files(reference, found.object)
        await asyncio.to_thread(self._store.save, source, files)
        if source != self._checkpoints.assigned:
            await asyncio.to_thread(self._store.assign, source)
            self._record(source)
            self._checkpoints = replace(self._checkpoints, assigned=source, is_damaged=False)
            if not self._checkpoints.rejection_error:
                await self._save_rejection(None)
            kept = {source, self._checkpoints.last_known_good, self._startup.config.config_source}
            await asyncio.to_thread(self._store.keep_only, kept)
        if self._version == version_before:  # otherwise a newer version was published meanwhile, and is read next
            self._version = source.resource_version

    async def _save_rejection(self, rejection: Rejection | None) -> None:
        if rejection != self._checkpoints.rejection:
            await asyncio.to_thread(self._store.reject, rejection)
            self._checkpoints = replace(self._checkpoints, rejection=rejection)

    def _on_node(self, change: Change[NodeObject]) -> None:
        if isinstance(change, Deleted):
            self._is_synced = False
        if not isinstance(change, Put):
            return
        try:
            reference = referenced_source(change.value.node)
        except ConfigSourceError as error:
            self._is_synced, self._reference = False, None
            if self._sync_error != error.error:
                self._failed(error.error, str(error))
            self._wake.set()
            return
        if self._is_synced and reference == self._reference:
            return
        if reference != self._reference:
            self._version, self._retry_at = "", 0.0
        if reference is None:
            self._synced()
        self._is_synced, self._reference = True, reference
        self._wake.set()

    def _on_object(self, change: Change[ChangedObject]) -> None:
        reference = self._reference
        if reference is None or not isinstance(change, Put | Deleted):
            return
        version = change.value.resource_version if isinstance(change, Put) else ""
        if change.key == f"{CONFIG_MAP}/{reference.namespace}/{reference.name}" and version != self._version:
            self._version, self._retry_at = version, 0.0
            self._wake.set()

    def _failed(self, error: str, line: str, step: Step | None = None) -> None:
        """Report that the step failed, or without a step the read of the Node or of the disk, and delay the next
        step."""
        self._failed_step = None if step is None else type(step)
        self._retry_at = self._context.clock.monotonic() + RETRY_SECONDS
        if error != self._sync_error:
            log.error("%s: %s", _SYNC_ERROR.format(error), line)
            self._context.bus.trouble(_TROUBLE, f"the configuration that the Node names: {line}")
        self._sync_error = error

    def _synced(self) -> None:
        self._sync_error, self._retry_at, self._failed_step = "", 0.0, None
        self._context.bus.trouble(_TROUBLE, None)

    def _publish(self) -> None:
        checkpoints, choice = self._checkpoints, self._startup.choice
        error = checkpoints.rejection_error
        if not error and choice is not None and choice.checkpoints.assigned == checkpoints.assigned:
            error = choice.error
        if self._is_refused:
            error = INTERNAL_ERROR
        if self._sync_error:
            error = _SYNC_ERROR.format(self._sync_error)
        status = NodeConfigStatus(
            assigned=checkpoints.assigned,
            active=self._startup.config.config_source,
            last_known_good=checkpoints.last_known_good,
            error=error,
        )
        self._metrics.show(status)
        self._status.put(NODE, status, "the configuration was looked at")
        self._status.mark_complete()

    def _record(self, source: ConfigSource | None) -> None:
        message = "Kubelet restarting to use local config"
        if source is not None:
            parts = (source.api_path, source.uid, source.resource_version, source.kubelet_config_key)
            message = "Kubelet restarting to use {}, UID: {}, ResourceVersion: {}, KubeletConfigKey: {}".format(*parts)
        name = self._context.config.node_name
        event = KubeEvent(type="Normal", reason="KubeletConfigChanged", message=message, kind="Node", name=name)
        self._events.record(event)
