"""A deletion of ResourceSlices that becomes due while the others are looked through is not forgotten."""

import asyncio
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from bus.interface import Freshness
from services.status.controllers.resource_slices import ResourceSlices
from services.status.core.slice_removals import GRACE_SECONDS


@pytest.mark.parametrize("early", [1, 2, 3])
async def test_a_timer_that_fires_early_delays_no_deletion(early: int) -> None:
    deleted = asyncio.Event()
    followers: list[Callable[[Any], None]] = []

    async def delete(*_: object, **__: object) -> dict[str, object]:
        deleted.set()
        return {}

    times = itertools.chain(
        [0.0], itertools.repeat(GRACE_SECONDS - 1e-6, early), itertools.repeat(GRACE_SECONDS + 1e-6)
    )
    bus = SimpleNamespace(follow=lambda _, follower: followers.append(follower), trouble=lambda *_: None)
    clock, config = SimpleNamespace(monotonic=lambda: next(times)), SimpleNamespace(node_name="n")
    context: Any = SimpleNamespace(bus=bus, clock=clock, config=config)
    clients: Any = SimpleNamespace(kube=SimpleNamespace(delete=delete))
    slices = ResourceSlices(context, clients)
    followers[0](Freshness(complete=True, stale=False))
    running = asyncio.create_task(slices.run())
    try:
        async with asyncio.timeout(5):
            await deleted.wait()
    finally:
        running.cancel()
