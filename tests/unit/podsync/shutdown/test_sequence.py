"""The way through the groups of pods while the machine shuts down (node.md 3 "Kill sequence")."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.podsync.core.shutdown.sequence import RunningPod, Shutdown, advance
from shared.model.frozen_copy import replace
from shared.model.shutdown_groups import Group, Groups

BEGIN = Shutdown(boot="b1", signal="PrepareForShutdown", began=1000.0)
GROUPS = (Group(priority=0, seconds=20.0), Group(priority=100, seconds=10.0), Group(priority=1000, seconds=5.0))


@dataclass
class Node:
    """Pods that stop some seconds after they were told, and a shutdown that is decided at each event."""

    groups: Groups
    priorities: Mapping[str, int]
    stop_after: Mapping[str, float]  # seconds from the request to stop until nothing is left of the pod
    graces: Mapping[str, int]

    def run(self) -> Shutdown:
        self.now, self.shutdown = 0.0, BEGIN
        self.told: dict[str, float] = {}
        self.given: dict[str, int] = {}
        self.late: list[str] = []
        while not self.shutdown.is_over:
            left = [uid for uid in self.priorities if self.ends_at(uid) > self.now]
            pods = [
                RunningPod(
                    uid=uid,
                    description=uid,
                    priority=self.priorities[uid],
                    grace_seconds=self.graces.get(uid, 30),
                    stops=uid in self.told,
                )
                for uid in left
            ]
            progress = advance(self.shutdown, self.groups, pods, now=self.now, wall=1000.0 + self.now)
            self.shutdown = progress.shutdown
            self.late += progress.late
            for stop in progress.stops:
                assert stop.uid not in self.told
                self.told[stop.uid], self.given[stop.uid] = self.now, stop.grace_seconds
            if self.shutdown.is_over:
                break
            ends = [self.ends_at(uid) for uid in self.told if self.ends_at(uid) > self.now]
            self.now = min([*ends, progress.wake_at])
        return self.shutdown

    def ends_at(self, uid: str) -> float:
        return self.told[uid] + self.stop_after[uid] if uid in self.told else float("inf")


def expected(node: Node) -> tuple[dict[str, float], float, list[str]]:
    """When each pod is told, when the machine goes on, and who was not finished in time, by the reference: "Groups
    low→high; empty groups are skipped. For each group, all pods concurrently. Group ends when all are done, or the
    group period elapsed"."""
    told: dict[str, float] = {}
    now, late = 0.0, list[str]()
    for place, group in enumerate(node.groups):
        top = node.groups[place + 1].priority if place + 1 < len(node.groups) else 1 << 40
        low = -(1 << 40) if place == 0 else group.priority
        pods = [uid for uid, priority in node.priorities.items() if low <= priority < top]
        if not pods:
            continue
        told |= dict.fromkeys(pods, now)
        late += [uid for uid in pods if node.stop_after[uid] > 0 and node.stop_after[uid] >= group.seconds]
        now += min(group.seconds, max(node.stop_after[uid] for uid in pods))
    return told, now, late


periods = st.sampled_from([0.0, 1.0, 2.0, 7.5, 30.0])
priorities = st.sampled_from([-10, 0, 1, 99, 100, 1000, 2_000_001_000])


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    lowest = sorted(draw(st.sets(st.sampled_from([0, 1, 100, 1000, 2_000_000_000]), min_size=1)))
    groups = tuple(Group(priority=priority, seconds=draw(periods)) for priority in lowest)
    uids = [f"u{number}" for number in range(draw(st.integers(0, 6)))]
    ends = st.sampled_from([0.5, 1.5, 3.0, 8.0, 45.0])
    return Node(
        groups,
        {uid: draw(priorities) for uid in uids},
        {uid: draw(ends) for uid in uids},
        {uid: draw(st.sampled_from([0, 1, 5, 30])) for uid in uids},
    )


@pytest.mark.long
@given(nodes())
def test_the_groups_follow_each_other_as_the_reference_says(node: Node) -> None:
    ended = node.run()
    told, seconds, late = expected(node)
    assert node.told == told
    assert ended.ended == 1000.0 + seconds
    assert sorted(ended.unfinished) == sorted(node.late) == sorted(late)


@pytest.mark.long
@given(nodes())
def test_each_pod_gets_the_smaller_of_its_own_grace_and_the_time_of_its_group(node: Node) -> None:
    node.run()
    for uid, grace in node.given.items():
        below = [group for group in node.groups if group.priority <= node.priorities[uid]] or [node.groups[0]]
        assert grace == min(int(below[-1].seconds), node.graces[uid])


def pod(uid: str, priority: int = 0, *, stops: bool = False) -> RunningPod:
    return RunningPod(uid=uid, description=uid, priority=priority, grace_seconds=30, stops=stops)


def test_a_restarted_process_tells_those_that_were_not_told_and_keeps_the_time_of_the_group() -> None:
    first = advance(BEGIN, GROUPS, [pod("u1"), pod("u2"), pod("u3", 100)], now=50.0, wall=0.0)
    assert [stop.uid for stop in first.stops] == ["u1", "u2"]
    pods = [pod("u1", stops=True), pod("u2"), pod("u3", 100)]
    again = advance(first.shutdown, GROUPS, pods, now=60.0, wall=0.0)
    assert [stop.uid for stop in again.stops] == ["u2"]
    assert again.wake_at == first.wake_at == 70.0


def test_a_pod_of_an_earlier_group_that_is_still_there_is_told_as_well() -> None:
    second = replace(BEGIN, group=1, group_began=50.0)
    found = advance(second, GROUPS, [pod("u1"), pod("u2", 100, stops=True)], now=51.0, wall=0.0)
    assert [(stop.uid, stop.grace_seconds) for stop in found.stops] == [("u1", 20)]


def test_where_the_configuration_has_fewer_groups_since_the_last_step_its_last_one_goes_on() -> None:
    pods = [
        RunningPod(uid=uid, description=uid, priority=priority, grace_seconds=30, stops=False)
        for uid, priority in (("low", 0), ("high", 1000))
    ]
    progress = advance(replace(BEGIN, group=7, group_began=100.0), GROUPS, pods, now=101.0, wall=1001.0)
    assert {stop.uid: stop.grace_seconds for stop in progress.stops} == {"low": 20, "high": 5}
    assert (progress.shutdown.is_over, progress.wake_at) == (False, 105.0)


def test_a_node_without_pods_lets_the_machine_go_on_at_once() -> None:
    found = advance(BEGIN, GROUPS, [], now=50.0, wall=1234.0)
    assert (found.shutdown.ended, found.stops, found.wake_at) == (1234.0, (), 0.0)


def test_an_end_stays_whatever_runs_later_and_that_stops_as_well() -> None:
    ended = replace(BEGIN, ended=1234.0)
    found = advance(ended, GROUPS, [pod("u1"), pod("u2", stops=True)], now=50.0, wall=0.0)
    assert (found.shutdown, found.wake_at) == (ended, 0.0)
    assert [(stop.uid, stop.grace_seconds) for stop in found.stops] == [("u1", 20)]
