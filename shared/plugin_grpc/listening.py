"""Follows whether a plugin listens at its socket, by a connection that stays open and makes no calls."""

from collections.abc import Callable
from typing import NoReturn

import grpc

from shared.plugin_grpc.connection import CHANNEL_OPTIONS

MAX_RECONNECT_SECONDS = 10  # between two attempts to connect
_OPTIONS = (*CHANNEL_OPTIONS, ("grpc.max_reconnect_backoff_ms", MAX_RECONNECT_SECONDS * 1000))
_LISTENS = {grpc.ChannelConnectivity.READY: True, grpc.ChannelConnectivity.TRANSIENT_FAILURE: False}


async def follow_listening(socket: str, on_change: Callable[[bool], None]) -> NoReturn:
    """Call `on_change` with True when a connection to the absolute path was made, and with False when none can be made,
    until cancelled. A connection that breaks and is made again at once is no change."""
    channel = grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)
    reported: bool | None = None
    try:
        while True:
            state = channel.get_state(try_to_connect=True)
            listens = _LISTENS.get(state, reported)
            if listens is not None and listens != reported:
                reported = listens
                on_change(listens)
            await channel.wait_for_state_change(state)
    finally:
        await channel.close(None)
