"""Reads, merges, saves and publishes the pods of the static pod path, and those applied to a node without a cluster.

It needs no other process. ConfigMaps and Secrets are read before the pods that may name them.
"""

import asyncio
import contextlib
import logging
from pathlib import Path

from bus.stream import EventRecorder
from services.sources.adapters.manifest_files import ManifestFiles
from services.sources.adapters.manifest_watch import ManifestWatch
from services.sources.controllers.applied_objects import AppliedObjects
from services.sources.controllers.desired_set import DesiredSet, failed_validation
from services.sources.controllers.troubles import Troubles
from services.sources.core.file_source import FileSource, ManifestFile, Problem
from services.sources.core.manifest_records import decode, encode, is_newer
from shared.config.effective import EffectiveConfig
from shared.files.checkpoint import Checkpoint
from shared.model import objects
from shared.model.objects import Object
from shared.podspec.pod_source import SEEN
from shared.podspec.static_pod import InvalidPod, static_pod
from shared.process.crash import crash_point
from shared.time.clock import Clock

log = logging.getLogger(__name__)


class _UnlistedError(Exception):
    """A directory cannot be listed; `str()` is one line."""


class StaticPods:
    """The source `file` of pods. `applied`: the objects that were applied to this node, None = it belongs to a
    cluster."""

    def __init__(
        self,
        config: EffectiveConfig,
        clock: Clock,
        desired: DesiredSet,
        events: EventRecorder,
        troubles: Troubles,
        applied: AppliedObjects | None = None,
    ) -> None:
        self._config, self._clock, self._desired = config, clock, desired
        self._events, self._troubles, self._applied = events, troubles, applied
        self._source = FileSource(self.make_pod)
        self._changed = asyncio.Event()
        paths = [config.static_pod_path] if config.static_pod_path else []
        if applied is not None:
            paths.append(applied.directory)
        self._places = [(path, ManifestFiles(path), ManifestWatch(path, self._changed.set)) for path in paths]
        place = Path("sources") / "manifests"
        self._records = Checkpoint(Path(config.root_dir) / place, Path(config.run_dir) / place)
        self._recorded: dict[str, Object] = {}  # by path, as on disk
        self._next_full_look = 0.0
        self.busy_since: float | None = None  # CLOCK_MONOTONIC; None while there is nothing to do

    async def run(self) -> None:
        """Publish the pods of the static pod path, now and at every change."""
        await self._remember()
        watching = asyncio.gather(*(watch.run() for _, _, watch in self._places))
        try:
            while True:
                self.busy_since = self._clock.monotonic()
                await self._look()
                self.busy_since = None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, self._next_full_look - self._clock.monotonic())):
                        await self._changed.wait()
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            for _, _, watch in self._places:
                watch.close()

    def make_pod(self, document: object, path: str) -> Object:
        """Return the pod of the manifest at this path. It is called in a thread. Raises InvalidPod."""
        objects = self._applied is not None and path.startswith(f"{self._applied.directory}/")
        name = self._config.node_name
        try:
            return static_pod(document, node_name=name, source="file", origin=path, objects=objects)
        except InvalidPod:
            raise
        except Exception as error:  # an unexpected manifest must not affect other pods
            log.exception("%s: the manifest could not be checked", path)
            raise InvalidPod(f"invalid pod: it could not be checked: {error!r}") from error

    async def _remember(self) -> None:
        try:
            records = await asyncio.to_thread(self._records.load_all)
        except OSError as error:
            self._troubles.set("records", f"the records of the manifests cannot be read: {error}")
            return
        newer = []
        for path, record in sorted(records.items()):
            decoded = decode(record, path, node_name=self._config.node_name)
            if decoded is None:
                if is_newer(record):
                    newer.append(path)
                else:
                    await self._drop_record(path)
                continue
            pod, origin = decoded
            self._source.remember(path, pod, origin)
            self._desired.pods.remember(objects.uid(pod), objects.annotations(pod).get(SEEN, ""))
            self._recorded[path] = pod
        if newer:
            what = "of a newer version of the agent and not used"
            log.warning("the records of %d manifests, %s among them, are %s", len(newer), newer[0], what)

    async def _look(self) -> None:
        """Read all files once, which covers every earlier event; a later event wakes the loop again."""
        self._changed.clear()
        now = self._clock.monotonic()
        full = now >= self._next_full_look
        if full:
            self._next_full_look = now + self._config.file_check_frequency
        lines = [watch.arm() for _, _, watch in self._places]
        self._troubles.set("inotify", next(filter(None, lines), None))
        try:
            files = await asyncio.to_thread(self._read)
            if self._source.lacks(files):
                # A file that was renamed during the first listing may be in it under neither name; the next one has it.
                files = await asyncio.to_thread(self._read)
        except _UnlistedError as error:
            self._troubles.set("staticPodPath", str(error))
            return
        self._troubles.set("staticPodPath", None)
        others: tuple[Problem, ...] = ()
        if self._applied is not None:
            files, others = await self._applied.take(files)
        listing = await asyncio.to_thread(self._source.look, files, full=full)
        changes = self._desired.merge("file", listing.pods.values())
        merged = self._desired.pods.pod
        await self._save({path: merged(objects.uid(pod), "file") for path, pod in listing.pods.items()})
        crash_point("sources.saved")
        self._desired.publish("file", changes, complete=True)
        crash_point("sources.published")
        for path in self._recorded.keys() - files.keys():
            await self._drop_record(path)
        self._report((*listing.problems, *others), listing.fresh)

    def _read(self) -> dict[str, ManifestFile]:
        """Return all files by path. Raises _UnlistedError."""
        files: dict[str, ManifestFile] = {}
        for path, place, _ in self._places:
            try:
                files |= place.look()
            except OSError as error:
                line = f"{path}: cannot be listed: {error.strerror}; the pods known from it stay"
                raise _UnlistedError(line) from error
        return files

    async def _save(self, pods: dict[str, Object | None]) -> None:
        """Save records of the files whose pod is new or changed. A full disk does not keep a pod from running: the
        failure is reported, and saving is tried again at the next look."""
        line: str | None = None
        for path, pod in pods.items():
            if pod is None or self._recorded.get(path) == pod:
                continue
            try:
                await asyncio.to_thread(self._records.save, path, encode(pod, self._source.origin(path)))
                self._recorded[path] = pod
            except OSError as error:
                line = f"the record of {path} cannot be saved: {error}"
        self._troubles.set("records", line or self._records.trouble)

    async def _drop_record(self, path: str) -> None:
        try:
            await asyncio.to_thread(self._records.delete, path)
            self._recorded.pop(path, None)
        except OSError as error:
            log.warning("the record of %s cannot be removed: %s", path, error)

    def _report(self, problems: tuple[Problem, ...], fresh: tuple[Problem, ...]) -> None:
        for problem in fresh:
            standing = f"; {objects.full_name(problem.pod)} keeps running as it was" if problem.pod else ""
            line = f"{problem.path}: {problem.reason}{standing}"
            log.error("%s", line)
            self._events.record(failed_validation(line, problem.pod))
        current = {problem.path: f"{problem.path}: {problem.reason}" for problem in problems}
        self._troubles.set_all("manifest", current, logged=True)
