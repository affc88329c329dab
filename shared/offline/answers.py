"""Answers a request live, or from a record once that is in use: a request to an API server that hangs does not wait for
its end."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def live_or_kept(
    live: Callable[[], Coroutine[Any, Any, T]], kept: Callable[[], T | None], in_use: asyncio.Event
) -> tuple[T, bool]:
    """Return the answer, and whether it is the live one. `kept` returns what the record has for the request while it is
    in use, and None otherwise; `in_use` is set when that begins."""
    if (found := kept()) is not None:
        return found, False
    asking = asyncio.create_task(live())
    began = asyncio.create_task(in_use.wait())
    try:
        await asyncio.wait({asking, began}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done() and (found := kept()) is not None:
            return found, False
        return await asking, True
    finally:
        began.cancel()
        asking.cancel()
