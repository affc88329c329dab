"""Lists the pods that the API server binds to this node, after the Node; watches, merges, saves and publishes them."""

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from bus.interface import OwnedStream
from bus.messages.sources import MirrorPod
from services.sources.controllers.api_server import ApiServer
from services.sources.controllers.desired_set import DesiredSet
from services.sources.controllers.list_watch import ListWatch
from services.sources.controllers.offline_pods import PODS, OfflineRecordOfPods
from services.sources.controllers.troubles import Troubles
from services.sources.core import first_seen
from services.sources.core.api_objects import is_older
from services.sources.core.api_pods import ApiPods
from services.sources.core.desired_pods import MergeChange, PodDesired, PodRemoved
from services.sources.core.offline_record import OfflineRecordData
from services.sources.core.reflector import MAX_PROMPT_PAUSE_SECONDS, NEWEST, Reflector
from shared.config.effective import EffectiveConfig
from shared.files.checkpoint import Checkpoint, RecordLocation
from shared.kube import paths
from shared.model import objects
from shared.model.objects import Object
from shared.podspec.pod_source import SEEN
from shared.process.crash import crash_point

log = logging.getLogger(__name__)


class ClusterPods:
    """The source `api` of pods, and the mirror pods. `before` receives each change right before it is published;
    `on_complete` is called once all pods of the API server are published. `offline`: the record to begin with where the
    API server does not answer, None = there is none; its Node is passed to `restore_node`."""

    def __init__(
        self,
        config: EffectiveConfig,
        api: ApiServer,
        desired: DesiredSet,
        mirrors: OwnedStream[MirrorPod],
        troubles: Troubles,
        *,
        before: Callable[[MergeChange], None],
        on_complete: Callable[[], None],
        offline: OfflineRecordOfPods | None = None,
        restore_node: Callable[[Object], None] = lambda _: None,
    ) -> None:
        self._offline, self._restore_node = offline, restore_node
        self._desired, self._mirrors, self._troubles = desired, mirrors, troubles
        self._before, self._on_complete = before, on_complete
        self._pods = ApiPods(config.node_name)
        self._changed, self._listed = asyncio.Event(), asyncio.Event()
        self._list_watch = ListWatch(
            api=api,
            client=api.clients.node,
            what=PODS,
            path=paths.PODS,
            selector=f"spec.nodeName={config.node_name}",
            on_list=self._on_list,
            on_change=self._on_change,
            reflector=Reflector(longest_pause=MAX_PROMPT_PAUSE_SECONDS, oldest=NEWEST),
        )
        place = Path("sources") / "pods"
        self._records = Checkpoint(Path(config.root_dir) / place, Path(config.run_dir) / place)
        self._recorded: dict[str, str] = {}  # UID -> first seen, as on disk
        self._recorded_version = ""  # up to which these were read, as on disk
        self._has_record = False  # the record was read and understood
        self._saves = True  # False = the record on disk was written by a newer version, and is kept
        self._api, self._clock = api, api.clock
        self.busy_since: float | None = None  # CLOCK_MONOTONIC; None while there is nothing to do

    async def run(self, node_read: asyncio.Event) -> None:
        """Run until cancelled; requests no pod before the node was read (pods.md 1.5)."""
        await self._remember()
        async with asyncio.TaskGroup() as parts:
            if self._offline is not None:
                parts.create_task(self._take_over(self._offline, node_read), name="pods-of-the-record")
            await node_read.wait()
            # A record that stays as it is has no version of what is published later. If the newest version is older
            # than the record's, the store went back while this process did not run. In both cases the newest state is
            # listed.
            if self._saves and not is_older(self._api.newest, self._recorded_version):
                self._list_watch.reflector.oldest = self._recorded_version
            parts.create_task(self._list_watch.run(), name="pods")
            parts.create_task(self._merge_changes(), name="pods-merge")

    @property
    def listed(self) -> list[Object] | None:
        """Return the pods to run as the API server has them; None while not all of them are known."""
        return self._pods.to_run if self._pods.complete else None

    @property
    def _last_seen(self) -> Collection[str] | None:
        """Return the UIDs of the pods that were published last, None where no record names them. That record is saved
        before a change is published, so it is never older than what the other services have."""
        return self._recorded if self._has_record else None

    async def _take_over(self, offline: OfflineRecordOfPods, node_read: asyncio.Event) -> None:
        """Publish the pods of the record, where the API server does not list them."""
        if (known := await offline.take_over(node_read, self._listed, self._last_seen)) is not None:
            self._restore(known, offline.since, with_node=not node_read.is_set())

    def _restore(self, known: OfflineRecordData, recorded: str, *, with_node: bool) -> None:
        """Publish the pods of the record, which the API server has not confirmed: none that is missing has ended."""
        if with_node and known.node is not None:
            self._restore_node(known.node)
        self._pods.restore(known.pods)
        changes = self._desired.merge("api", self._pods.to_run, recorded=recorded)
        self._desired.publish("api", changes, complete=False, before=self._before)
        crash_point("sources.offline.published")

    def _on_list(self, items: list[Any]) -> None:
        self._pods.replace(items)
        self._listed.set()
        self._changed.set()

    def _on_change(self, kind: str, item: Any) -> None:
        self._pods.change(kind, item)
        self._changed.set()

    async def _merge_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            self.busy_since = self._clock.monotonic()
            await self._merge()
            self.busy_since = None

    async def _merge(self) -> None:
        """Merge everything that was received so far. What arrives while the disk is busy is merged the next time."""
        for line in self._pods.notices:
            log.warning("%s", line)
        self._pods.notices.clear()
        self._troubles.set_all("pods", {line: line for line in self._pods.problems}, logged=True)
        complete, mirrors, pods = self._pods.complete, self._pods.mirrors, self._pods.to_run
        version = self._list_watch.reflector.oldest
        changes = self._desired.merge("api", pods)
        if self._recorded_version and not any(isinstance(change, PodDesired | PodRemoved) for change in changes):
            version = self._recorded_version  # the pods to run are the same, and a status alone is not worth a write
        await self._save([objects.uid(pod) for pod in pods], version or self._recorded_version, complete=complete)
        crash_point("sources.saved")
        for key, mirror in mirrors.items():
            if (shown := self._mirrors.get(key)) is None or shown.pod is not mirror.pod:
                self._mirrors.put(key, mirror, "object added or changed")
        for key in sorted(set(self._mirrors.keys()) - mirrors.keys()):
            self._mirrors.delete(key, "object gone")
        self._desired.publish("api", changes, complete=complete, before=self._before)
        if complete:
            self._mirrors.mark_complete()
            self._on_complete()
        if self._offline is not None:
            self._offline.listed(changed=any(isinstance(change, PodDesired | PodRemoved) for change in changes))
        crash_point("sources.published")

    async def _remember(self) -> None:
        try:
            records = await asyncio.to_thread(self._records.load_all)
        except OSError as error:
            self._troubles.set("records of pods", f"the record of when pods were first seen cannot be read: {error}")
            return
        record = records.get(first_seen.KEY)
        self._recorded, self._recorded_version = first_seen.decode(record), first_seen.resource_version(record)
        self._saves = not first_seen.is_newer(record)
        self._has_record = record is not None and self._saves
        if not self._saves:
            log.warning("the record of when pods were first seen is of a newer version of the agent and stays as it is")
        for uid, seen in self._recorded.items():
            self._desired.pods.remember(uid, seen)

    async def _save(self, uids: list[str], version: str, *, complete: bool) -> None:
        """Save when the pods were first seen, and the `version` up to which they were read."""
        merged = ((uid, self._desired.pods.pod(uid, "api")) for uid in uids)
        seen = {uid: objects.annotations(pod)[SEEN] for uid, pod in merged if pod is not None}
        if not complete:  # pods that cannot be understood at the moment keep their times
            seen = self._recorded | seen
        if (seen, version) == (self._recorded, self._recorded_version) or not self._saves:
            return
        line: str | None = None
        try:
            kept = await asyncio.to_thread(self._records.save, first_seen.KEY, first_seen.encode(seen, version))
            if kept is not RecordLocation.NOWHERE:
                self._recorded, self._recorded_version = seen, version
        except OSError as error:
            line = f"the record of when pods were first seen cannot be saved: {error}"
        self._troubles.set("records of pods", line or self._records.trouble)
