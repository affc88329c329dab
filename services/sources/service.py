"""Sources at work: look at the static pod path, merge, save, publish. Decides nothing itself."""

import asyncio
import contextlib
import logging
import time
from pathlib import Path

from bus.event_recorder import EventRecorder
from bus.messages.event import KubeEvent
from bus.messages.streams import PODS_DESIRED, events_of
from services.launch import Context
from services.sources.adapters.manifest_files import ManifestFiles
from services.sources.adapters.manifest_watch import ManifestWatch
from services.sources.core.desired_pods import DesiredPods, Duplicate, MergeChange, Removed, Wanted
from services.sources.core.file_source import FileSource, Problem
from services.sources.core.manifest_records import decode, encode
from shared.checkpoint import Checkpoint
from shared.crash import crash_point
from shared.model import objects
from shared.model.objects import Object
from shared.podspec.static_pod import SEEN, InvalidPod, seen_text, static_pod

_log = logging.getLogger(__name__)

LOOP = "sources"
TURN = 5.0  # seconds: an idle loop turns at least this often, so that its progress can be judged


def build(context: Context) -> "Sources":
    """The service for `services.launch`."""
    return Sources(context)


class Sources:
    """The one owner of `pods.desired`."""

    def __init__(self, context: Context) -> None:
        self._config, self._bus, self._clock = context.config, context.bus, context.clock
        self._desired_stream = self._bus.own(PODS_DESIRED)
        self._events = EventRecorder(self._bus.own(events_of("sources")), self._clock)
        path = self._config.static_pod_path
        self._desired = DesiredPods(frozenset({"file"} if path else ()))
        self._source = FileSource(self._make_pod)
        self._files, self._watch = ManifestFiles(path), ManifestWatch(path, self._wake)
        place = Path("sources") / "manifests"
        self._records = Checkpoint(Path(self._config.root_dir) / place, Path(self._config.run_dir) / place)
        self._recorded: dict[str, Object] = {}  # by path, as on disk
        self._troubles: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._next_full_look = 0.0

    async def run(self) -> None:
        """Publish what the static pod path says, now and whenever it changes."""
        if not self._config.static_pod_path:
            _log.info("no staticPodPath is set: no pods come from files")
            self._desired_stream.mark_complete()
            while True:
                await self._turn_or_change()
        await self._remember()
        watching = asyncio.create_task(self._watch.run(), name="manifest-watch")
        try:
            while True:
                await self._look()
                await self._turn_or_change()
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            self._watch.close()

    def _wake(self) -> None:
        self._changed.set()

    async def _turn_or_change(self) -> None:
        """Until something changed or the next full look is due."""
        while True:
            self._bus.progress(LOOP)
            left = self._next_full_look - self._clock.monotonic() if self._config.static_pod_path else TURN
            if left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, TURN)):  # wait_for may swallow a cancellation before Python 3.12
                    await self._changed.wait()
                return

    def _make_pod(self, document: object, path: str) -> Object:
        try:
            return static_pod(document, node_name=self._config.node_name, source="file", origin=path)
        except InvalidPod:
            raise
        except Exception as error:  # a manifest nobody thought of must not take the other pods down
            _log.exception("%s: the manifest could not be judged", path)
            raise InvalidPod(f"invalid pod: it could not be judged: {error!r}") from error

    async def _remember(self) -> None:
        try:
            records = await asyncio.to_thread(self._records.load_all)
        except OSError as error:
            self._trouble("records", f"the records of the manifests cannot be read: {error}")
            return
        for path, record in records.items():
            pod = decode(record, node_name=self._config.node_name)
            if pod is None:
                await self._drop_record(path)
                continue
            self._source.remember(path, pod)
            self._desired.remember(objects.uid(pod), objects.annotations(pod).get(SEEN, ""))
            self._recorded[path] = pod

    async def _look(self) -> None:
        """One look: everything heard before it is answered by it, everything after it wakes the loop again."""
        self._changed.clear()
        now = self._clock.monotonic()
        full = now >= self._next_full_look
        if full:
            self._next_full_look = now + self._config.file_check_frequency
        self._trouble("inotify", self._watch.arm())
        try:
            files = await asyncio.to_thread(self._files.look)
        except OSError as error:
            path = self._config.static_pod_path
            self._trouble("staticPodPath", f"{path}: cannot be listed: {error.strerror}; the pods known from it stay")
            return
        self._trouble("staticPodPath", None)
        listing = self._source.look(files, full=full)
        wall = self._clock.wall()
        seen = seen_text(round(wall * 1e9), time.localtime(wall).tm_gmtoff)
        changes = self._desired.merge("file", listing.pods.values(), seen=seen)
        await self._save({path: self._desired.pod(objects.uid(pod)) for path, pod in listing.pods.items()})
        crash_point("sources.saved")
        for change in changes:
            self._publish(change)
        crash_point("sources.published")
        for path in self._recorded.keys() - files.keys():
            await self._drop_record(path)
        self._report(listing.problems, listing.fresh)
        if self._desired.complete:
            self._desired_stream.mark_complete()

    async def _save(self, pods: dict[str, Object | None]) -> None:
        """Records of the files whose pod is new or changed. A full disk must not keep a pod from running: it is said,
        and tried again at the next look."""
        line: str | None = None
        for path, pod in pods.items():
            if pod is None or self._recorded.get(path) == pod:
                continue
            try:
                await asyncio.to_thread(self._records.save, path, encode(pod))
                self._recorded[path] = pod
            except OSError as error:
                line = f"the record of {path} cannot be saved: {error}"
        self._trouble("records", line or self._records.trouble)

    async def _drop_record(self, path: str) -> None:
        try:
            await asyncio.to_thread(self._records.delete, path)
            self._recorded.pop(path, None)
        except OSError as error:
            _log.warning("the record of %s cannot be removed: %s", path, error)

    def _publish(self, change: MergeChange) -> None:
        match change:
            case Removed(uid):
                _log.info("pod %s is no longer wanted: its manifest is gone or changed", uid)
                self._desired_stream.delete(uid, "manifest gone or changed")
            case Wanted(desired, added):
                _log.info("pod %s is wanted%s", objects.describe(desired.pod), "" if added else " as changed")
                self._desired_stream.put(desired.uid, desired, "manifest added" if added else "manifest changed")
            case Duplicate(pod, message):
                _log.warning("%s", message)
                self._events.record(_warning(message, pod))

    def _report(self, problems: tuple[Problem, ...], fresh: tuple[Problem, ...]) -> None:
        for problem in fresh:
            standing = f"; {objects.full_name(problem.pod)} keeps running as it was" if problem.pod else ""
            line = f"{problem.path}: {problem.reason}{standing}"
            _log.error("%s", line)
            self._events.record(_warning(line, problem.pod))
        current = {f"manifest {problem.path}": f"{problem.path}: {problem.reason}" for problem in problems}
        for name in [name for name in self._troubles if name.startswith("manifest ") and name not in current]:
            self._trouble(name, None)
        for name, line in current.items():
            self._trouble(name, line, logged=True)

    def _trouble(self, name: str, line: str | None, *, logged: bool = False) -> None:
        if self._troubles.get(name) == line:
            return
        if line is None:
            _log.info("%s: no longer in trouble", name)
            del self._troubles[name]
        else:
            if not logged:
                _log.warning("%s", line)
            self._troubles[name] = line
        self._bus.trouble(name, line)


def _warning(message: str, pod: Object | None) -> KubeEvent:
    identity = {} if pod is None else {key: pod["metadata"].get(key, "") for key in ("namespace", "name", "uid")}
    return KubeEvent(type="Warning", reason="FailedValidation", message=message, **identity)
