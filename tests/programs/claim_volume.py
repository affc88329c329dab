"""Runs volume with resource claims as a process that can be killed: `python -m tests.programs.claim_volume DIRECTORY`,
with CRASH_AT for the point at which it is killed.

What podsync and the API server would say is in `DIRECTORY/plan.json`, and is read again when the file is replaced; what
volume publishes is written to `DIRECTORY/shown.json`.
"""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState
from services.volume.controllers import claim_checkpoint, driver_calls
from services.volume.core.resource_claims import claim_failures
from shared.time.backoff import Backoff
from tests.service.volume.claim_node import ClaimNode

PLAN, SHOWN = "plan.json", "shown.json"
_POLL_SECONDS = 0.02


def write_plan(directory: Path, claims: dict[str, list[str]], pods: dict[str, tuple[list[str], PodState]]) -> None:
    """Write which claims are reserved for which pods, and which claims and state each pod has."""
    _replace(directory / PLAN, {"claims": claims, "pods": pods})


def read_shown(directory: Path) -> dict[str, list[tuple[str, str]]]:
    """Return the state and the error of each claim of each pod, as the newest process shows them."""
    path = directory / SHOWN
    return dict(json.loads(path.read_text())) if path.exists() else {}


async def run(directory: Path) -> None:
    """Serve until the process is killed."""
    patch = pytest.MonkeyPatch()
    patch.setattr(claim_failures, "RETRIES", Backoff(initial=0.1, cap=0.3))
    patch.setattr(driver_calls, "MAX_WAIT_SECONDS", 0.5)  # for a driver that does not come
    patch.setattr(claim_checkpoint, "MIN_SECONDS", 0.02)
    node = ClaimNode(directory)
    await node.start(patch)
    seen: Any = None
    async with node.node.volume():
        while True:
            plan = json.loads((directory / PLAN).read_text())
            if plan != seen:
                seen = plan
                for claim, users in plan["claims"].items():
                    node.put(claim, *users)
                for uid, (claims, state) in plan["pods"].items():
                    node.admit(uid, *claims, state=PodState(state))
            items = node.node.claims.state.items()
            shown = {uid: [(str(claim.state), claim.error) for claim in item.claims] for uid, item in items}
            if node.node.claims.complete:
                _replace(directory / SHOWN, shown)
            await asyncio.sleep(_POLL_SECONDS)


def _replace(path: Path, content: Any) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(content))
    temporary.rename(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    asyncio.run(run(parser.parse_args().directory))
