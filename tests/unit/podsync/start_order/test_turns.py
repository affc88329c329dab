"""Who may begin now, compared with pods that are asked one after the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.podsync.core.start_order.rank import Rank, StartGroup
from services.podsync.core.start_order.turns import PLACE_SECONDS, Start, StartState, next_change, who_begins
from shared.model.frozen_copy import replace

STARTS = st.lists(
    st.builds(
        lambda group, priority, state, since: (Rank(group, False, -priority), state, since),
        st.sampled_from(StartGroup),
        st.integers(-1, 1),
        st.sampled_from(StartState),
        st.sampled_from((0.0, 3.0, 8.0)),
    ),
    max_size=8,
).map(
    lambda drawn: [
        Start(uid=f"u{number}", rank=rank, number=number, state=state, since=since)
        for number, (rank, state, since) in enumerate(drawn)
    ]
)


def one_by_one(starts: list[Start], places: int, now: float) -> list[str]:
    """Give the places to one pod after the other: to those that have begun, and then to the smallest of the rest."""
    late = [s for s in starts if s.state is not StartState.WAITING and now - s.since >= PLACE_SECONDS]
    rest = [s for s in starts if s not in late]
    begun, taken = list[str](), sum(s.state is StartState.BEGUN for s in rest)
    rest = [s for s in rest if s.state is not StartState.BEGUN]
    while rest and taken < places:
        first = rest[0]
        for other in rest:
            if (other.rank.group, other.rank.descending_priority, other.number) < (
                first.rank.group,
                first.rank.descending_priority,
                first.number,
            ):
                first = other
        rest.remove(first)
        taken += 1
        if first.state is StartState.WAITING:
            begun.append(first.uid)
    return begun


@given(STARTS, st.integers(1, 4), st.sampled_from((0.0, 5.0, 7.9, 8.0, 13.0)))
def test_places_go_to_the_first_that_want_one(starts: list[Start], places: int, now: float) -> None:
    assert list(who_begins(starts, places, now)) == one_by_one(starts, places, now)


@pytest.mark.long
@given(STARTS, st.integers(1, 4))
def test_every_pod_begins_also_where_no_other_ever_finishes_its_start(starts: list[Start], places: int) -> None:
    now = 8.0
    for _ in range(2 * len(starts) + 1):
        begins = who_begins(starts, places, now)
        starts = [replace(s, state=StartState.BEGUN, since=now) if s.uid in begins else s for s in starts]
        if not any(s.state is StartState.WAITING for s in starts):
            return
        assert now < next_change(starts, now) <= now + PLACE_SECONDS
        now = next_change(starts, now)
    raise AssertionError([s.uid for s in starts if s.state is StartState.WAITING])
