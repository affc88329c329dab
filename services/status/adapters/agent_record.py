"""Keeps on disk what status did in the present start of the agent, and which allocatable amounts it set itself.

A restart of this process alone is no start of the agent: what was done under the same supervisord counts as done.
"""

import asyncio
import logging
from typing import Any

from msgspec import Struct, field, to_builtins

from shared.files.checkpoint import Checkpoint
from shared.model.frozen_copy import replace

log = logging.getLogger(__name__)

AGENT = "agent"  # the key of the record


class AgentFacts(Struct, frozen=True, kw_only=True):
    """The facts about the present start of the agent. `generation`: its supervisord, "" = not known: then each process
    counts as a start of its own."""

    generation: str = ""
    first_start: bool = False  # no agent with this root directory has written the status of a Node yet
    registered: bool = False  # our Node was created or found, and its status written, in this start
    # Moments of this start in seconds of CLOCK_MONOTONIC, 0 = not yet: the first try to create our Node, its creation
    # by us, and when the API server first had it as Ready.
    registering_at: float = 0.0
    created_at: float = 0.0
    ready_at: float = 0.0
    unschedulable: bool = False  # the Node was last seen cordoned
    csi_drivers: tuple[str, ...] = ()  # drivers that were registered in this start and whose entries are not removed
    allocatable: dict[str, tuple[str, ...]] = field(default_factory=dict)  # foreign resource -> quantities we set


class AgentRecord:
    """Holds the facts in memory and saves each change before it returns. Call `load` first."""

    def __init__(self, records: Checkpoint, generation: str) -> None:
        self._records = records
        self._saving = asyncio.Lock()  # several tasks note facts: the newest ones are saved last
        self.facts = AgentFacts(generation=generation)

    async def load(self) -> bool:
        """Read the record, and return whether it is of this start of the agent. The allocatable amounts are kept in any
        case."""
        try:
            saved = (await asyncio.to_thread(self._records.load_all)).get(AGENT, {"first_start": True})
        except OSError as error:
            log.warning("the record of the agent's start cannot be read: %s", error)
            return False
        self.facts = replace(
            self.facts,
            first_start=saved.get("first_start") is True,
            allocatable=_quantities(saved.get("allocatable")),
        )
        if not self.facts.generation or saved.get("generation") != self.facts.generation:
            return False
        self.facts = replace(
            self.facts,
            registered=saved.get("registered") is True,
            registering_at=_moment(saved.get("registering_at")),
            created_at=_moment(saved.get("created_at")),
            ready_at=_moment(saved.get("ready_at")),
            unschedulable=saved.get("unschedulable") is True,
            csi_drivers=_names(saved.get("csi_drivers")),
        )
        return True

    async def note(self, **changes: Any) -> None:
        """Change facts and save them, if they differ. If they cannot be saved, that is logged."""
        changed = replace(self.facts, **changes)
        if changed != self.facts:
            self.facts = changed
            await self.save()

    async def save(self) -> None:
        """Save the facts as they are."""
        async with self._saving:
            try:
                await asyncio.to_thread(self._records.save, AGENT, to_builtins(self.facts))
            except OSError as error:
                log.warning("the record of the agent's start cannot be saved: %s", error)


def _moment(saved: object) -> float:
    return saved if isinstance(saved, float) else 0.0


def _names(saved: object) -> tuple[str, ...]:
    return tuple(name for name in saved if isinstance(name, str)) if isinstance(saved, list) else ()


def _quantities(saved: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(saved, dict):
        return {}
    return {
        name: tuple(amount for amount in amounts if isinstance(amount, str))
        for name, amounts in saved.items()
        if isinstance(amounts, list)
    }
