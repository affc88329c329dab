"""Removes unused images when the image filesystem fills up or when they are too old (node.md 6.1)."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Set

from bus.interface import NoAnswerError, RequestRefusedError
from bus.messages.event import KubeEvent
from bus.messages.usage import FoundUsage, GetUsage
from services.frame.launch import Context
from services.podsync.controllers.runtime_answers import RuntimeAnswers
from services.podsync.core.images.image_collection import (
    Histories,
    ImageGCPolicy,
    bytes_to_free,
    not_freed,
    removable,
    too_old,
    updated,
)
from shared.cri.interface import ImageStatus, Runtime, RuntimeCallError
from shared.metrics.family import counter

log = logging.getLogger(__name__)

COLLECTED = counter("kubelet_image_garbage_collected_total", "Unused images that were removed: age or space.", "reason")
COLLECT_SECONDS = 300.0
FIRST_SECONDS = 60.0  # from the first list to the first collection, so that the work on pods goes first
MAX_USAGE_ANSWER_SECONDS = 10.0


class ImageCollection:
    """Removes unused images. `used` returns the ids and names of the images in use, None while the pods are not all
    known: then nothing is removed. `record` records an Event of the node."""

    def __init__(
        self,
        context: Context,
        runtime: Runtime,
        used: Callable[[], Set[str] | None],
        record: Callable[[KubeEvent], object],
        answers: RuntimeAnswers,
    ) -> None:
        config, self._clock, self._bus = context.config, context.clock, context.bus
        self._runtime, self._used, self._record, self._answers = runtime, used, record, answers
        self._node_name = config.node_name
        self._policy = ImageGCPolicy(
            minimum_age=config.image_minimum_gc_age,
            maximum_age=config.image_maximum_gc_age,
            high_percent=config.image_gc_high_threshold_percent,
            low_percent=config.image_gc_low_threshold_percent,
        )
        self._collected = context.metrics.counter(COLLECTED)
        self._started_at = self._clock.monotonic()
        self._histories: Histories = {}
        self._failed_before = False
        self._one_at_a_time = asyncio.Lock()

    async def run(self) -> None:
        """List the images as soon as the runtime answers, because the age of an image counts from the first list that
        has it. Collect a minute later, then every 5 min, until cancelled."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):  # after which the first collection lists them
                images, _ = await self._answers.repeat(self._look)
                log.info("the runtime has %d images", len(images))
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            await self.collect()
            await asyncio.sleep(COLLECT_SECONDS)

    async def remove_unused(self) -> None:
        """Remove all unused images, as a full filesystem demands before a pod is evicted (node.md 5.4)."""
        async with self._one_at_a_time:
            try:
                images, used = await self._look()
                if used is None:
                    log.warning("no images are removed: the pods of the node are not all known yet")
                    return
                freed, _ = await self._remove(self._removable(images, used), None)
                log.info("%d bytes of unused images were removed", freed)
            except RuntimeCallError as error:
                log.warning("unused images cannot be removed: %s", error)

    async def collect(self) -> None:
        """Collect once; a failure is logged and, when it is not the first in a row, an event."""
        try:
            async with self._one_at_a_time:
                await self._collect()
        except (RuntimeCallError, CollectionError) as error:
            if not self._failed_before:  # usually only because pleg has not read the node yet
                log.info("image garbage collection failed: %s", error)
            else:
                log.error("image garbage collection failed again: %s", error)
                self._warn("ImageGCFailed", str(error))
            self._failed_before = True
        else:
            if self._failed_before:
                log.info("image garbage collection works again")
            self._failed_before = False

    async def _collect(self) -> None:
        images, used = await self._look()
        if self._policy.is_off or used is None:
            return
        now = self._clock.monotonic()
        unused = self._removable(images, used)
        if 0 < self._policy.maximum_age < now - self._started_at:
            old = too_old(unused, self._histories, now, self._policy.maximum_age)
            await self._remove(old, None, "age")
            unused = [image for image in unused if image not in old]
        capacity, available = await self._filesystem()
        wanted = bytes_to_free(capacity, available, self._policy)
        if not wanted:
            return
        freed, errors = await self._remove(unused, wanted)
        if errors:
            text = "; ".join(map(str, errors[:3]))
            raise CollectionError(
                f"wanted to free {wanted} bytes, but freed {freed} bytes space with errors in image deletion: {text}"
            )
        if freed < wanted:
            message = not_freed(capacity, available, freed)
            self._warn("FreeDiskSpaceFailed", message)
            raise CollectionError(message)

    async def _look(self) -> tuple[tuple[ImageStatus, ...], Set[str] | None]:
        """Return the images that are present, and the ids and names in use."""
        images, used = await self._runtime.list_images(), self._used()
        self._histories = updated(self._histories, images, used or frozenset(), self._clock.monotonic())
        return images, used

    def _removable(self, images: Iterable[ImageStatus], used: Set[str]) -> list[ImageStatus]:
        return removable(images, self._histories, used, self._clock.monotonic(), self._policy.minimum_age)

    async def _remove(
        self, images: list[ImageStatus], wanted: int | None, reason: str = "space"
    ) -> tuple[int, list[RuntimeCallError]]:
        """Remove images until `wanted` bytes are freed, None = all. An image that came into use meanwhile stays. Return
        the bytes freed, and the errors."""
        freed, errors = 0, []
        for image in images:
            if wanted is not None and freed >= wanted:
                break
            used = self._used()
            if used is None or self._removable([image], used) == []:
                continue
            log.info("removing the unused image %s, %d bytes", (*image.repo_tags, image.id)[0], image.size)
            try:
                await self._runtime.remove_image(image.id)
            except RuntimeCallError as error:
                log.warning("the image %s cannot be removed: %s", image.id, error)
                errors.append(error)
            else:
                freed += image.size
                self._collected.inc(reason)
        return freed, errors

    async def _filesystem(self) -> tuple[int, int]:
        """Return the capacity and the available bytes of the image filesystem. Raises CollectionError."""
        try:
            request = GetUsage(max_age_seconds=COLLECT_SECONDS / 10, pods=False)
            answer = await self._bus.ask("pleg", request, FoundUsage, timeout=MAX_USAGE_ANSWER_SECONDS)
        except (NoAnswerError, RequestRefusedError) as error:
            raise CollectionError(f"the image filesystem is not known: {error}") from None
        usage = answer.node.imagefs
        if usage is None or usage.capacity is None or usage.available is None:
            raise CollectionError("the image filesystem cannot be read")
        if usage.capacity == 0:
            self._warn("InvalidDiskCapacity", "invalid capacity 0 on image filesystem")
            raise CollectionError("invalid capacity 0 on image filesystem")
        return usage.capacity, usage.available

    def _warn(self, reason: str, message: str) -> None:
        self._record(KubeEvent(type="Warning", reason=reason, message=message, kind="Node", name=self._node_name))


class CollectionError(Exception):
    """Images could not be collected; the text is the event's."""
