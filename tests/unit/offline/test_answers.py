"""A request for what a record may have is answered live, or from the record once that is in use."""

import asyncio

from shared.offline.answers import live_or_kept


async def test_a_record_that_begins_to_be_in_use_before_the_request_waits_for_that_is_noticed() -> None:
    """The event is set and cleared again, between the first look and the wait."""
    known: list[str] = []
    in_use, decided = asyncio.Event(), asyncio.Event()

    def begin() -> None:
        known.append("kept")
        in_use.set()
        in_use.clear()

    async def live() -> str:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    asyncio.get_running_loop().call_soon(begin)
    asking = live_or_kept(live, lambda: known[0] if known else None, in_use, lambda _: False, decided)
    async with asyncio.timeout(5.0):
        assert await asking == ("kept", False)
