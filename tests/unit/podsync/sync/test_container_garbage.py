"""Which dead containers are garbage: limits for each container and for the node, ages, finished pods under pressure."""

import pytest

from bus.messages.podsync import PodState
from services.podsync.core.pod.saved import Saved
from services.podsync.core.pod.tracked_pod import TrackedPod
from services.podsync.core.sync.container_garbage import GarbageLimits, garbage
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, RuntimePod

NOW = 1000.0  # wall clock seconds


def container(name: str, born: int, *, runs: bool = False) -> Container:
    return Container(
        id=f"{name}{born}",
        name=name,
        attempt=born,
        sandbox_id="s",
        state=ContainerState.RUNNING if runs else ContainerState.EXITED,
        created_at=born * 10**9,
    )


def pod(uid: str, *containers: Container, state: PodState = PodState.FINISHED) -> TrackedPod:
    own = [replace(c, id=f"{uid}/{c.id}") for c in containers]  # ids are unique in a runtime
    newest_first = tuple(sorted(own, key=lambda c: -c.created_at))
    seen = RuntimePod(uid=uid, name=uid, namespace="default", observed_at=1.0, containers=newest_first)
    tracked = TrackedPod(uid=uid, name=uid, namespace="default", saved=replace(Saved(), state=state))
    return tracked.with_observation(seen, 1.0)


def removed(limits: GarbageLimits, *pods: TrackedPod, pressed: bool = False) -> set[str]:
    found = garbage(pods, limits, NOW, pressed=pressed)
    assert all(ids for ids in found.values())
    assert all(one.startswith(f"{uid}/") for uid, ids in found.items() for one in ids)
    return {one for ids in found.values() for one in ids}


def test_a_finished_pod_keeps_the_newest_instance_of_each_container() -> None:
    done = pod("p", container("a", 1), container("a", 2), container("b", 1))
    assert removed(GarbageLimits(), done) == {"p/a1"}


def test_under_pressure_a_finished_pod_keeps_nothing_and_others_keep_all() -> None:
    done = pod("done", container("a", 1), container("b", 2))
    runs = pod("runs", container("a", 1), container("a", 2, runs=True), container("b", 3), state=PodState.SYNC)
    ends = pod("ends", container("a", 1), state=PodState.TERMINATING)
    assert removed(GarbageLimits(), done, runs, ends, pressed=True) == {"done/a1", "done/b2"}


@pytest.mark.parametrize("per_container", [0, 1, 2, -1])
def test_the_newest_instance_of_a_container_that_may_start_again_is_never_garbage(per_container: int) -> None:
    crashes = pod("p", container("a", 5), state=PodState.SYNC)
    limits = GarbageLimits(per_container=per_container, total=0)
    assert removed(limits, crashes) == set() and removed(limits, crashes, pressed=True) == set()


def test_a_finished_pod_keeps_none_with_a_limit_of_zero_and_all_with_a_negative_one() -> None:
    done = pod("p", container("a", 1), container("a", 2))
    assert removed(GarbageLimits(per_container=0), done) == {"p/a1", "p/a2"}
    assert removed(GarbageLimits(per_container=-1), done) == set()


def test_a_container_younger_than_the_minimum_age_is_no_garbage_even_under_pressure() -> None:
    done = pod("p", container("a", 989), container("a", 990), container("a", 991))
    limits = GarbageLimits(minimum_age=10.0, per_container=0)
    assert removed(limits, done) == {"p/a989", "p/a990"} == removed(limits, done, pressed=True)


def test_the_limit_of_the_node_is_shared_equally_first() -> None:
    many = pod("many", *(container("a", born) for born in range(1, 6)))
    few = pod("few", container("a", 1))
    assert removed(GarbageLimits(per_container=-1, total=4), many, few) == {"many/a1", "many/a2", "many/a3"}


def test_with_more_containers_than_the_node_may_keep_the_oldest_go() -> None:
    pods = [pod(f"p{born}", container("a", born)) for born in (3, 1, 2)]
    assert removed(GarbageLimits(total=2), *pods) == {"p1/a1"}
    assert removed(GarbageLimits(total=0), *pods) == {"p1/a1", "p2/a2", "p3/a3"}
    assert removed(GarbageLimits(total=3), *pods) == set()
