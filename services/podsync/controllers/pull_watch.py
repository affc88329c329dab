"""Watches the pulls in progress in the runtime's content store, and publishes how far each is (`pods.pulls`).
Polls only while an image is pulled, beside the pull: a store that hangs, fails or is missing delays no pull. No
decision uses the progress, and a new process reads it again.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from msgspec import to_builtins

from bus.interface import OwnedStream
from bus.messages.event import KubeEvent
from bus.messages.podsync import ImagePull
from services.podsync.adapters.story import StoryFiles
from services.podsync.core.images.pull_progress import (
    MAX_MANIFEST_BYTES,
    PullProgress,
    advanced,
    identified,
    layers_of,
    missing,
    source_of,
)
from shared.cri.interface import ContentStore, ContentStoreError, Runtime
from shared.model.frozen_copy import replace
from shared.model.objects import Object, name, namespace, uid
from shared.podspec.containers import field_path
from shared.text.pull_text import pull_text
from shared.time.clock import Clock

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
MAX_POLL_SECONDS = 5.0  # for all requests of one poll
_MANIFEST_POLLS = 5  # polls from one search for manifests to the next; a change of the fetched blobs causes one, too
# Seconds from the begin of a pull to a line in the pod's story, and from the second one on also an Event.
_LINES_AT = (10, 60, 120, 240, 480, 960, 1920, 3840, 7680, 15360)


@dataclass
class _Pulling:
    """Has a pod that waits for the pull of its image. `began`: seconds of CLOCK_MONOTONIC."""

    pod: Object
    container: str
    image: str
    began: float
    lines: int = 0  # moments of `_LINES_AT` that are over


@dataclass
class _Polls:
    """Has the state that the polls over one connection share."""

    number: int = 0
    fetched: frozenset[str] = field(default_factory=frozenset)  # digests at the last poll


class PullWatch:
    """Polls the content store while images are pulled. `record` records Events. Whether the runtime has a content store
    is decided once per connection, which lasts until no image is pulled."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        stream: OwnedStream[ImagePull],
        stories: StoryFiles,
        record: Callable[[KubeEvent], object],
    ) -> None:
        self._runtime, self._clock, self._stream = runtime, clock, stream
        self._stories, self._record = stories, record
        self._pods: dict[str, _Pulling] = {}  # by UID
        self._progress: dict[str, PullProgress] = {}  # by image
        self._task: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        stream.mark_complete()

    @contextmanager
    def watched(self, pod: Object, container: str, image: str) -> Iterator[None]:
        """Watch the pull of this image for the pod while the block runs."""
        pulling = _Pulling(pod, container, image, self._clock.monotonic())
        self._pods[uid(pod)] = pulling
        if image not in self._progress:
            self._progress[image] = PullProgress(image=image, began=pulling.began, began_wall=self._clock.wall())
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            del self._pods[uid(pod)]
            self._stream.delete(uid(pod), "the pull has ended")
            if not any(other.image == image for other in self._pods.values()):
                del self._progress[image]
            if not self._pods:
                self._end()

    async def close(self) -> None:
        """End the polls."""
        self._end()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._ending.add(self._task)
            self._task.add_done_callback(self._ending.discard)
            self._task = None

    async def _run(self) -> None:
        store = self._runtime.content_store()
        if store is None:
            return
        polls = _Polls()
        try:
            while True:
                await asyncio.sleep(POLL_SECONDS)
                try:
                    async with asyncio.timeout(MAX_POLL_SECONDS):
                        await self._poll(store, polls)
                except ContentStoreError as error:
                    if error.code == "Unimplemented":
                        log.debug("the runtime does not show how far pulls are")
                        return
                    self._withdraw()
                    log.debug("the progress of pulls cannot be read: %s", error)
                except TimeoutError:
                    self._withdraw()
        except Exception:
            log.exception("the progress of pulls is no longer read until all of them have ended")
        finally:
            self._withdraw()
            await store.close()

    async def _poll(self, store: ContentStore, polls: _Polls) -> None:
        ingests = {ingest.digest: ingest.offset for ingest in await store.ingests()}
        fetched = frozenset(ingests)
        if fetched != polls.fetched or polls.number % _MANIFEST_POLLS == 0:
            await self._find_manifests(store, fetched)
        polls.fetched, polls.number = fetched, polls.number + 1
        for image, progress in list(self._progress.items()):
            present = [digest for digest in missing(progress, ingests) if await store.has(digest)]
            if self._progress.get(image) is progress:  # else the pull has ended, or another pull of the image has begun
                self._progress[image] = advanced(progress, self._clock.monotonic(), ingests, present)
        for pod_uid, pulling in self._pods.items():
            if (progress := self._progress[pulling.image]).samples:  # else the pull has begun during this poll
                self._show(pod_uid, pulling, progress)

    async def _find_manifests(self, store: ContentStore, fetched: frozenset[str]) -> None:
        """Read the manifests of the images whose layers are not known."""
        unknown: dict[tuple[str, str], list[PullProgress]] = {}
        for progress in self._progress.values():
            if not progress.layers:
                unknown.setdefault(source_of(progress.image), []).append(progress)
        for source, group in unknown.items():
            blobs = await store.blobs(*source)
            known = [progress for progress in self._progress.values() if progress.layers]
            for before, progress in zip(group, identified(group, known, blobs, fetched), strict=True):
                layers = {
                    layer.digest: layer
                    for digest in sorted(progress.manifests)
                    for layer in layers_of(await store.read(digest, MAX_MANIFEST_BYTES))
                }
                if self._progress.get(before.image) is before:
                    self._progress[before.image] = replace(progress, layers=tuple(layers.values()))

    def _show(self, pod_uid: str, pulling: _Pulling, progress: PullProgress) -> None:
        now = self._clock.monotonic()
        seconds = now - pulling.began
        item = ImagePull(
            image=progress.image,
            seconds=round(seconds, 1),
            arrived=progress.arrived,
            total=progress.total,
            layers=len(progress.layers),
            rate=int(progress.rate()),
            idle=round(now - max(progress.grew_at, progress.began), 1),
            shared_with=progress.shared_with,
        )
        self._stream.put(pod_uid, item)
        lines = bisect_right(_LINES_AT, seconds)
        if lines == pulling.lines:
            return
        pulling.lines = lines
        self._stories.add_pull(pod_uid, self._clock.wall(), to_builtins(item))
        if lines > 1:
            self._record(_event(pulling, item))

    def _withdraw(self) -> None:
        for pod_uid in self._pods:
            self._stream.delete(pod_uid, "the progress is not known")


def _event(pulling: _Pulling, item: ImagePull) -> KubeEvent:
    pod, container = pulling.pod, pulling.container
    return KubeEvent(
        type="Normal",
        reason="PullProgress",
        message=f'Pulling image "{item.image}" since {item.seconds:.0f}s: {pull_text(to_builtins(item))}',
        namespace=namespace(pod),
        name=name(pod),
        uid=uid(pod),
        resource_version=str((pod.get("metadata") or {}).get("resourceVersion") or ""),
        field_path=field_path(pod, container) if container else "",
    )
