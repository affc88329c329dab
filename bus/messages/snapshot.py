"""How a follower catches up: the request every owner of a stream answers, and the whole stream as its answer."""

from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, kw_only=True)
class GetSnapshot:
    """Request to the owner of a stream: everything the stream holds now."""

    stream: str


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Answer to GetSnapshot: all entries as of update `number` of this incarnation of the owner.

    `complete` = the owner has listed everything there is; until then an absent key does not mean a deleted one.
    Values stay undecoded JSON: only a follower knows their type.
    """

    stream: str
    incarnation: str
    number: int
    complete: bool
    entries: dict[str, msgspec.Raw]
