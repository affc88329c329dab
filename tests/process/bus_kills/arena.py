"""The messages between the owner, the followers and the test of the bus under SIGKILL."""

from dataclasses import dataclass

from bus.messages.streams import Stream

OWNER = "owner"
FOLLOWERS = ("first", "second", "third")


@dataclass(frozen=True, kw_only=True)
class Item:
    """A value of the stream; `version` grows with every change the owner ever made."""

    version: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Finish:
    """Request to the owner: change nothing any more, and return the state."""


@dataclass(frozen=True, kw_only=True)
class GetState:
    """Request to a follower: what it has received so far."""


@dataclass(frozen=True, kw_only=True)
class AwaitState:
    """Request to a follower: answer once this is the state of the replica, complete and fresh."""

    items: dict[str, Item]


@dataclass(frozen=True, kw_only=True)
class State:
    """Answer to all of them."""

    items: dict[str, Item]
    changes: int


ITEMS = Stream("items", OWNER, Item)
