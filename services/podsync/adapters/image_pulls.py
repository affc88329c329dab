"""Image pulls of the whole node: one at a time or a bounded number, within registry QPS and burst (pods.md 7.3)."""

import asyncio

from shared.clock import Clock
from shared.config.effective import EffectiveConfig
from shared.cri.interface import Message, Runtime, RuntimeCallError


class ImagePulls:
    """The node's turnstile before PullImage."""

    def __init__(self, runtime: Runtime, clock: Clock, config: EffectiveConfig) -> None:
        self._runtime, self._clock = runtime, clock
        parallel = 1 if config.serialize_image_pulls else config.max_parallel_image_pulls or 1_000
        self._turns = asyncio.Semaphore(parallel)
        self._qps, self._burst = config.registry_pull_qps, max(config.registry_burst, 1)
        self._tokens, self._filled_at = float(self._burst), clock.monotonic()

    async def pull(self, image: Message, sandbox_config: Message) -> tuple[float, float]:
        """Pull; returns seconds of the pull proper and with waiting.

        Raises RuntimeCallError, "pull QPS exceeded" included: that bucket never waits.
        """
        asked = self._clock.monotonic()
        if not self._take_token(asked):
            raise RuntimeCallError("PullImage", "Unknown", "pull QPS exceeded")
        async with self._turns:
            began = self._clock.monotonic()
            await self._runtime.pull_image(image, sandbox_config)
            ended = self._clock.monotonic()
        return ended - began, ended - asked

    def _take_token(self, now: float) -> bool:
        if self._qps <= 0:
            return True
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
