"""However updates are lost, repeated and reordered: one good beat and snapshot, and the follower equals its owner."""

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.codec import PROTOCOL_VERSION
from bus.frames import Update
from bus.interface import Deleted, Freshness, Put
from bus.ledger import Ledger
from bus.messages.beat import Beat
from bus.messages.snapshot import Snapshot
from bus.replica import Outcome, Replica
from tests.unit.examples import examples

STREAM = "pods.desired"
KEYS = "abc"

Step = tuple[str, str, int]
STEPS: st.SearchStrategy[Step] = st.tuples(
    st.sampled_from(["put", "put", "delete", "complete", "restart", "beat", "tick", "answer", "lose answer"]),
    st.sampled_from(KEYS),
    st.integers(0, 3),
)
# What becomes of a frame: delivered so many times, that many steps late.
FATES = st.lists(st.tuples(st.sampled_from([0, 1, 1, 1, 2]), st.sampled_from([0, 0, 0, 1, 3, 9])), max_size=80)


@dataclass
class World:
    """One owner through its incarnations, one follower, and a wire that follows a script."""

    fates: list[tuple[int, int]]
    ledger: Ledger = field(default_factory=lambda: Ledger(STREAM, "0"))
    replica: Replica = field(default_factory=lambda: Replica(STREAM))
    now: float = 0.0
    wire: list[tuple[int, Update | Beat]] = field(default_factory=list)
    answers: list[Snapshot] = field(default_factory=list)
    delivered: dict[str, bytes] = field(default_factory=dict)
    standing: Freshness = field(default_factory=lambda: Freshness(complete=False, stale=True))

    def send(self, frame: Update | Beat | None) -> None:
        if frame is not None:
            copies, delay = self.fates.pop() if self.fates else (1, 0)
            self.wire += [(delay, frame)] * copies

    def beat(self) -> Beat:
        return Beat(
            service="sources",
            incarnation=self.ledger.incarnation,
            protocol=PROTOCOL_VERSION,
            pid=1,
            sent_at=self.now,
            streams={STREAM: self.ledger.number},
        )

    def step(self, step: Step) -> None:
        verb, key, number = step
        match verb:
            case "put":
                self.send(self.ledger.put(key, json.dumps(number).encode()))
            case "delete":
                self.send(self.ledger.delete(key))
            case "complete":
                self.send(self.ledger.mark_complete())
            case "restart":
                self.ledger = Ledger(STREAM, str(int(self.ledger.incarnation) + 1))
            case "beat":
                self.send(self.beat())
            case "tick":
                self.now += number
                self.take(self.replica.tick(self.now))
            case "answer" if self.answers:
                self.take(self.replica.snapshot(self.answers.pop(0), self.now))
            case "lose answer" if self.answers:
                self.answers.pop()
                self.replica.snapshot_lost()
        self.deliver_due()

    def deliver_due(self) -> None:
        due = [frame for delay, frame in self.wire if delay <= 0]
        self.wire = [(delay - 1, frame) for delay, frame in self.wire if delay > 0]
        for frame in due:
            self.deliver(frame)

    def deliver(self, frame: Update | Beat) -> None:
        self.take(
            self.replica.beat(frame, self.now) if isinstance(frame, Beat) else self.replica.update(frame, self.now)
        )

    def take(self, outcome: Outcome) -> None:
        for change in outcome.changes:
            match change:
                case Put(key, value):
                    assert self.delivered.get(key) != value, "delivered a value that is the same"
                    self.delivered[key] = value
                case Deleted(key):
                    del self.delivered[key]
                case Freshness():
                    assert change != self.standing, "delivered a freshness that is the same"
                    self.standing = change
        assert self.delivered == dict(self.replica.entries)
        assert self.standing == Freshness(complete=self.replica.complete, stale=self.replica.stale)
        if outcome.need_snapshot:
            self.answers.append(self.ledger.snapshot())

    def good_round(self) -> None:
        """The wire falls silent; the answer under way arrives; then one beat, and one snapshot if that asks for it."""
        self.wire.clear()
        if self.replica.waiting:
            self.take(self.replica.snapshot(self.ledger.snapshot(), self.now))
        self.take(self.replica.beat(self.beat(), self.now))
        if self.replica.waiting:
            self.take(self.replica.snapshot(self.ledger.snapshot(), self.now))


@pytest.mark.long
@settings(max_examples=examples(300), deadline=None)
@given(st.lists(STEPS, max_size=60), FATES)
def test_one_good_round_leaves_the_follower_equal_to_its_owner(steps: list[Step], fates: list[tuple[int, int]]) -> None:
    world = World(fates)
    for step in steps:
        world.step(step)
    world.good_round()
    owner = {key: bytes(raw) for key, raw in world.ledger.snapshot().entries.items()}
    follower = dict(world.replica.entries)
    assert {key: follower[key] for key in owner} == owner
    assert not world.replica.stale
    assert world.replica.complete == world.ledger.complete
    if world.ledger.complete:
        assert follower == owner


@pytest.mark.long
@settings(max_examples=examples(300), deadline=None)
@given(st.lists(STEPS, max_size=60), FATES)
def test_a_restarted_owner_that_is_never_complete_deletes_nothing_it_did_not_list(
    steps: list[Step], fates: list[tuple[int, int]]
) -> None:
    world = World(fates)
    for key in KEYS:
        world.ledger.put(key, b'"before"')
    world.good_round()
    world.step(("restart", "a", 0))
    for step in steps:
        if step[0] not in ("complete", "delete"):
            world.step(step)
    world.good_round()
    assert set(world.replica.entries) == set(KEYS)
