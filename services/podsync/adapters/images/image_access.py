"""Records before and after each pull which pods may use the images of this node (pods.md 7.6).
**After a kill**: an image with an intent and no record counts as pulled with unknown credentials. An intent is written
before its pull begins, and removed after the record is on disk.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

from services.podsync.adapters.images.image_record_files import ImageRecordFiles
from services.podsync.core.images.image_records import (
    PullAccess,
    PulledRecord,
    access_of,
    decide_access,
    merged,
    must_verify,
)
from services.podsync.core.images.image_repository import is_named, repository
from services.podsync.core.images.keyring import TrackedCredential
from shared.config.effective import EffectiveConfig
from shared.cri.interface import Runtime
from shared.process.crash import crash_point
from shared.time.clock import Clock
from shared.time.timestamps import rfc3339

log = logging.getLogger(__name__)


class ImageAccess:
    """Decides with records on disk which pods may use an image; with policy "" (feature gate off) all may, and nothing
    is recorded."""

    def __init__(self, runtime: Runtime, config: EffectiveConfig, clock: Clock) -> None:
        self._runtime, self._clock = runtime, clock
        self._policy, self._allowlist = config.image_verification_policy, config.preloaded_images
        self._files = ImageRecordFiles(Path(config.root_dir))
        self._pulls: Counter[str] = Counter()  # image -> pulls of it under way
        self._lock = asyncio.Lock()  # one change of the records at a time
        self._recovered = not self._policy

    @property
    def is_kept(self) -> bool:
        """Whether pulls are recorded and checked at all."""
        return bool(self._policy)

    async def may_use(
        self, image: str, image_ref: str, credentials: Callable[[], Awaitable[Sequence[TrackedCredential]]]
    ) -> bool:
        """Return whether a pod may use this image, which is present, without a pull. `credentials` is called only where
        they matter. Raises RuntimeCallError."""
        if not self._policy:
            return True
        await self.recover()
        record = self._files.pulled(
            image_ref
        )  # not in a thread: the file is small, and every start of a container waits for it
        pulled_here = record is not None or self._files.has_intent(image)
        if not must_verify(self._policy, self._allowlist, image, pulled_here=pulled_here):
            return True
        access = record.mapping.get(repository(image), PullAccess()) if record is not None else PullAccess()
        needs_credentials = not (access.is_empty or access.all_pods)
        verdict = decide_access(record, image, await credentials() if needs_credentials else ())
        if verdict.learn is not None:
            await self._note(image, image_ref, verdict.learn)
        return verdict.allowed

    async def recover(self) -> None:
        """Record each image that an earlier process was pulling, and that the runtime has, as pulled with unknown
        credentials; this happens once per process. Raises RuntimeCallError; the caller then tries again."""
        if self._recovered:
            return
        async with self._lock:
            intents = [] if self._recovered else await asyncio.to_thread(self._files.intents)
            present = await self._runtime.list_images() if intents else ()
            found = [
                (image, status.id)
                for image in intents
                for status in present
                if is_named(image, (*status.repo_tags, *status.repo_digests))
            ]
            await _to_the_end(self._record_recovered(found))

    async def _record_recovered(self, images: list[tuple[str, str]]) -> None:
        self._recovered = True
        try:
            for image, image_ref in images:
                await asyncio.to_thread(self._write, image, image_ref, None)
                await asyncio.to_thread(self._files.remove_intent, image)
        except OSError as error:
            log.error("what was being pulled cannot be recorded, pods will have to pull it again: %s", error)

    async def begin(self, image: str) -> None:
        """Write the intent to pull the image. Raises OSError: without an intent on disk nothing may be pulled."""
        if self._policy:
            await _to_the_end(self._begin(image))
            crash_point("podsync.image.intent")

    async def _begin(self, image: str) -> None:
        async with self._lock:
            await asyncio.to_thread(self._files.write_intent, image)
            self._pulls[image] += 1

    async def succeeded(self, image: str, image_refs: Iterable[str], credential: TrackedCredential | None) -> None:
        """Record that the image was pulled with this credential. Where that cannot be written, the intent stays."""
        if self._policy:
            await _to_the_end(self._succeeded(image, image_refs, credential))

    async def _succeeded(self, image: str, image_refs: Iterable[str], credential: TrackedCredential | None) -> None:
        crash_point("podsync.image.pulled")
        written = [await self._note(image, image_ref, access_of(credential)) for image_ref in image_refs if image_ref]
        crash_point("podsync.image.recorded")
        await self._end(image, keep=not all(written))

    async def failed(self, image: str, *, unanswered: bool) -> None:
        """Record that the pull failed. `unanswered`: its outcome is unknown, and the intent stays, as after a kill."""
        if self._policy:
            await _to_the_end(self._end(image, keep=unanswered))

    async def prune(self) -> None:
        """Remove the records of images that the runtime no longer has. Raises RuntimeCallError, OSError."""
        present = {image.id for image in await self._runtime.list_images()}
        for image_ref in await asyncio.to_thread(self._files.pulled_refs):
            if image_ref in present:
                continue
            async with (
                self._lock
            ):  # so that a pull that has just ended writes its record before or after this, not meanwhile
                if await self._runtime.image_status(image_ref) is None:
                    await asyncio.to_thread(self._files.remove_pulled, image_ref)

    async def _note(self, image: str, image_ref: str, access: PullAccess) -> bool:
        async with self._lock:
            try:
                await asyncio.to_thread(self._write, image, image_ref, access)
            except OSError as error:
                log.error("the pull of %s cannot be recorded, pods will have to pull it again: %s", image, error)
                return False
        return True

    def _write(self, image: str, image_ref: str, access: PullAccess | None) -> None:
        before: PulledRecord | None = self._files.pulled(image_ref)
        after = merged(before, image_ref, image, access, rfc3339(self._clock.wall()))
        if after is not before:
            self._files.write_pulled(after)

    async def _end(self, image: str, *, keep: bool) -> None:
        async with self._lock:
            if self._pulls[image] > 1:
                self._pulls[image] -= 1
                return
            del self._pulls[image]
            if keep:
                return
            try:
                await asyncio.to_thread(self._files.remove_intent, image)
            except OSError as error:
                log.error("the note that %s is being pulled cannot be removed: %s", image, error)


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine to its end, also where the caller is cancelled meanwhile."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
