"""Lists the images of the runtime: every 30 s, as the kubelet, and at once when a pod runs a new image."""

import asyncio
import logging

from bus.interface import OwnedStream
from bus.messages.pleg import NodeImages
from services.pleg.adapters.waiting import wait_for
from services.pleg.core.image_list import ImageList
from services.pleg.core.retry_delay import RetryDelay
from shared.cri.interface import Runtime, RuntimeCallError
from shared.model.runtime import RuntimePod
from shared.time.clock import Clock

log = logging.getLogger(__name__)

LIST_SECONDS = 30.0  # node.md 0.1 "image list cache"


class ImageReader:
    """Owns `node.images`; the stream does not send an unchanged list."""

    def __init__(self, runtime: Runtime, clock: Clock, stream: OwnedStream[NodeImages]) -> None:
        self._runtime, self._clock, self._stream = runtime, clock, stream
        self._images = ImageList()
        self._ask_now = asyncio.Event()

    async def run(self) -> None:
        """List until cancelled. The relists report failures of the runtime."""
        retry, next_period = RetryDelay(), self._clock.monotonic()
        while True:
            if self._clock.monotonic() >= next_period:
                self._images.period_began()
                next_period = self._clock.monotonic() + LIST_SECONDS
            try:
                images = self._images.listed(await self._runtime.list_images())
            except RuntimeCallError as error:
                log.debug("could not list images: %s", error)
                await asyncio.sleep(retry.failed())
                continue
            retry.succeeded()
            self._stream.put("node", images, "listed")
            self._stream.mark_complete()
            await wait_for(self._ask_now, max(0.0, next_period - self._clock.monotonic()))

    def observed(self, pod: RuntimePod) -> None:
        """List at once where this pod, which is published, runs a new image."""
        if self._images.is_news(pod):
            self._ask_now.set()
