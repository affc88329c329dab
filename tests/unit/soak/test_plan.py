"""The soak's operations: the same for the same seed, bounded, and with a right account of what must be there."""

from itertools import pairwise

import pytest

from tests.soak.plan import AT_ONCE, GRACES, SHORTEST, VICTIMS, Kind, Round, plan_round, victims_of
from tests.soak.schedule import Schedule, schedule_of
from tests.soak.shapes import LASTING, Outcome, Shape, outcome_of, pod_of

SEEDS = range(25)
ANY = ("podsync", "status")


def rounds() -> list[Round]:
    return [plan_round(seed, number, 60.0, ANY if number else ()) for seed in SEEDS for number in (0, 1, 4)]


def test_the_same_seed_and_round_give_the_same_operations() -> None:
    first, second = (plan_round(7, 3, 60.0, ANY) for _ in range(2))
    assert first == second
    assert first.operations != plan_round(8, 3, 60.0, ANY).operations
    assert first.operations != plan_round(7, 4, 60.0, ANY).operations


def test_a_longer_round_begins_like_a_shorter_one() -> None:
    short, long = (plan_round(7, 3, seconds, ANY).operations for seconds in (20.0, 60.0))
    assert long[: len(short)] == short


def test_there_are_at_most_two_operations_a_second() -> None:
    for plan in rounds():
        moments = [operation.at for operation in plan.operations]
        assert all(later - earlier >= SHORTEST - 0.001 for earlier, later in pairwise(moments))


def test_there_are_never_more_pods_than_the_bound() -> None:
    for plan in rounds():
        alive: set[str] = set()
        for operation in plan.operations:
            if operation.kind is Kind.CREATE:
                assert operation.pod not in alive
                alive.add(operation.pod)
            elif operation.kind is Kind.DELETE:
                alive.remove(operation.pod)
            assert len(alive) <= AT_ONCE


def test_what_is_expected_is_what_was_made_and_not_deleted() -> None:
    for plan in rounds():
        alive: dict[str, Shape] = {}
        hurt: dict[str, bool] = {}
        overdue: set[str] = set()
        for operation in plan.operations:
            match operation.kind:
                case Kind.CREATE:
                    alive[operation.pod], hurt[operation.pod] = operation.shape, False
                    overdue.discard(operation.pod)
                case Kind.DELETE:
                    del alive[operation.pod]
                case Kind.IMAGE | Kind.KILL_CONTAINER:
                    assert not hurt[operation.pod], "a second blow would be answered with a back-off"
                    hurt[operation.pod] = True
                case Kind.DEADLINE if operation.amount < 10:
                    overdue.add(operation.pod)
        assert {name: pod.shape for name, pod in plan.expected.items()} == alive
        for name, pod in plan.expected.items():
            assert pod.outcome is (Outcome.FAILED if name in overdue else outcome_of(pod.shape))
            assert bool(pod.hurt) is (hurt[name] or name in overdue)


def test_sessions_and_blows_go_to_pods_that_are_there_and_last() -> None:
    pods_of = {Kind.EXEC, Kind.LOGS, Kind.FORWARD, Kind.IMAGE, Kind.KILL_CONTAINER, Kind.LABEL, Kind.ATTACH_BROKEN}
    for plan in rounds():
        alive: dict[str, Shape] = {}
        for operation in plan.operations:
            if operation.kind is Kind.CREATE:
                alive[operation.pod] = operation.shape
            elif operation.kind is Kind.DELETE:
                assert operation.amount in GRACES
                del alive[operation.pod]
            elif operation.kind in pods_of:
                assert alive[operation.pod] in LASTING


def test_the_warm_up_does_everything_once_and_kills_no_process() -> None:
    for seed in SEEDS:
        plan = plan_round(seed, 0, 1.0, ())
        assert {operation.shape for operation in plan.operations if operation.kind is Kind.CREATE} == set(Shape)
        rare = {Kind.KILL_PROCESS, Kind.DELETE, Kind.ANNOTATE, Kind.DEADLINE}
        assert set(Kind) - rare <= {operation.kind for operation in plan.operations}
        assert Kind.KILL_PROCESS not in {operation.kind for operation in plan.operations}


def test_every_other_round_kills_one_of_its_victims_at_least() -> None:
    for seed in SEEDS:
        killed = {o.pod for o in plan_round(seed, 1, 15.0, ANY).operations if o.kind is Kind.KILL_PROCESS}
        assert killed and killed <= set(ANY)


def test_each_process_may_be_killed_in_one_quarter_and_is_left_alone_in_three() -> None:
    for seed in SEEDS:
        by_round = [victims_of(seed, number, 40) for number in range(1, 41)]
        assert victims_of(seed, 0, 40) == ()
        for process in VICTIMS:
            hit = [number for number, victims in enumerate(by_round) if process in victims]
            assert len(hit) == 10 and hit == list(range(hit[0], hit[0] + 10))


def test_the_order_of_victims_depends_on_the_seed() -> None:
    assert len({victims_of(seed, 1, 2) for seed in SEEDS}) > 5


@pytest.mark.parametrize("shape", Shape)
def test_every_shape_is_a_pod_bound_to_the_node(shape: Shape) -> None:
    pod = pod_of(shape, "a")
    assert pod["spec"]["nodeName"] and pod["metadata"]["name"] == "a"
    assert pod["spec"]["containers"][0]["name"] == "main"
    assert pod == pod_of(shape, "a")


def test_the_schedule_fits_into_its_minutes_and_ends_with_a_deep_rest() -> None:
    assert schedule_of(3) == Schedule(3, 2, 15.0)
    for minutes in (3, 5, 10, 30, 120, 480):
        schedule = schedule_of(minutes)
        deep = [number for number in range(schedule.rounds + 1) if schedule.is_deep(number)]
        assert deep[-1] == schedule.rounds and 0 not in deep
        spent = 15 + 25 + 8 + schedule.rounds * schedule.round_seconds + len(deep) * 62 + 5
        assert spent <= minutes * 60 + 62
    assert schedule_of(0.1).rounds == 1
