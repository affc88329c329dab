"""A conflict of configuration, files and machine ends a start of the agent, and no restart of podsync alone."""

import pytest

from services.podsync.core.checkpoints.start_conflicts import StartConflicts
from shared.errors import OperatorError

CONFLICT = OperatorError("CPUs are gone", where="cpuManagerPolicy", remedy="bring them online")


@pytest.mark.parametrize(
    ("last", "generation"),
    [
        ({}, "boot/100/7"),
        ({"generation": "boot/100/6"}, "boot/100/7"),
        ({"generation": "boot/100/7"}, "boot/100/7/2"),  # a reload
        ({"generation": ""}, ""),  # not known
        ({}, ""),
    ],
)
def test_a_start_of_the_agent_with_a_conflict_fails_and_one_without_is_saved(
    last: dict[str, str], generation: str
) -> None:
    conflicts = StartConflicts(last, generation)
    assert (conflicts.record, conflicts.trouble) == ({"generation": generation} if generation else None, None)
    with pytest.raises(OperatorError, match="CPUs are gone"):
        conflicts.report(CONFLICT)


def test_a_restart_of_podsync_alone_notes_each_conflict_and_saves_nothing() -> None:
    conflicts = StartConflicts({"generation": "boot/100/7"}, "boot/100/7")
    assert (conflicts.record, conflicts.trouble) == (None, None)
    conflicts.report(CONFLICT)
    conflicts.report(OperatorError("memory is gone"))
    assert conflicts.trouble == (
        "the machine has changed since the agent started, whose next start fails: "
        f"{CONFLICT}; {OperatorError('memory is gone')}"
    )
