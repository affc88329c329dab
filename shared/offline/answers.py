"""Answers a request live, or from a record once that is in use: a request to an API server that hangs does not wait for
its end, and one that fails right after the start, before it is known whether the record counts, waits for that."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
WITHOUT_ANSWER_SECONDS = 5.0  # of the API server after a start, until the record is used
_MAX_WAIT_SECONDS = WITHOUT_ANSWER_SECONDS + 1.0  # for the process that decides this


async def live_or_kept(
    live: Callable[[], Coroutine[Any, Any, T]],
    kept: Callable[[], T | None],
    in_use: asyncio.Event,
    is_open: Callable[[T], bool],
    decided: asyncio.Event,
) -> tuple[T, bool]:
    """Return the answer, and whether it is the live one. `kept` returns what the record has for the request while it is
    in use, and None otherwise; `in_use` is set when that begins. `is_open` returns whether a live answer failed which
    the record may replace; `decided` is set when that may have changed."""
    found, is_live = await _answer(live, kept, in_use)
    if not (is_live and is_open(found)):
        return found, is_live
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_MAX_WAIT_SECONDS):
            while is_open(found):
                await decided.wait()
    return await _answer(live, kept, in_use)


async def _answer(
    live: Callable[[], Coroutine[Any, Any, T]], kept: Callable[[], T | None], in_use: asyncio.Event
) -> tuple[T, bool]:
    if (found := kept()) is not None:
        return found, False
    asking = asyncio.create_task(live())
    began = asyncio.create_task(in_use.wait())
    try:
        await asyncio.sleep(0)  # now `began` waits: what was set and cleared before is seen here
        if (found := kept()) is not None:
            return found, False
        await asyncio.wait({asking, began}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done() and (found := kept()) is not None:
            return found, False
        return await asking, True
    finally:
        began.cancel()
        asking.cancel()
