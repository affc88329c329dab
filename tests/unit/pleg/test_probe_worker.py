"""One probe's machine, rule by rule of pods.md 10.2, and what holds whatever happens."""

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.pleg.core.probe_spec import ExecHandler, ProbeKind, ProbeSpec
from services.pleg.core.probe_worker import Instance, ProbeWorker, Verdict

NOW = 1000.0
LIVENESS, READINESS, STARTUP = ProbeKind.LIVENESS, ProbeKind.READINESS, ProbeKind.STARTUP


def spec(kind: ProbeKind = READINESS, **fields: Any) -> ProbeSpec:
    return ProbeSpec(**{"kind": kind, "container": "c", "sidecar": False, "handler": ExecHandler(("true",)), **fields})


def running(container_id: str = "a", **fields: Any) -> Instance:
    kind_started = fields.pop("started", True)
    return Instance(**{"id": container_id, "running": True, "started_at": NOW, "started": kind_started, **fields})


def seen(kind: ProbeKind = READINESS, *, instance: Instance | None = None, **fields: Any) -> ProbeWorker:
    """A worker whose container has just started."""
    worker = ProbeWorker(spec(kind, **fields))
    worker.observed(instance or running(started=kind is not STARTUP), NOW)
    return worker


def tried(worker: ProbeWorker, *verdicts: Verdict) -> list[str]:
    """Let tries end so, each when it is due; the result after each."""
    results = []
    for verdict in verdicts:
        worker.begin(worker.due)
        worker.finished(worker.container_id, verdict)
        results.append(worker.result)
    return [*results]


# -- pods.md 10.2.1-10.2.5: which instance, and whether it is probed --------------------------------------------------


def test_without_an_instance_it_waits() -> None:
    worker = ProbeWorker(spec())
    worker.observed(None, NOW)
    assert worker.due == inf and worker.result == "" and worker.container_id == ""


@pytest.mark.parametrize(("kind", "initial"), [(LIVENESS, "success"), (READINESS, "failure"), (STARTUP, "")])
def test_a_new_instance_gets_the_initial_value_of_its_kind(kind: ProbeKind, initial: str) -> None:
    assert seen(kind).result == initial


@pytest.mark.parametrize("kind", list(ProbeKind))
def test_an_instance_that_ran_before_us_gets_none_and_its_turn_within_a_period(kind: ProbeKind) -> None:
    worker = seen(kind, instance=running(found_running=True, first_delay=0.25, started=kind is not STARTUP), period=8)
    assert worker.result == "" and worker.due == NOW + 2


def test_a_sidecar_that_had_started_before_us_keeps_its_startup_success() -> None:
    worker = seen(STARTUP, instance=running(found_running=True), sidecar=True)
    assert worker.result == "success" and worker.due == inf


def test_another_instance_drops_result_count_and_hold() -> None:
    worker = seen(LIVENESS, failure_threshold=2)
    assert tried(worker, Verdict.FAILURE, Verdict.FAILURE) == ["success", "failure"]
    assert worker.due == inf
    worker.observed(running("b"), NOW + 60)
    assert worker.result == "success" and worker.due < inf
    assert tried(worker, Verdict.FAILURE) == ["success"]


def test_on_hold_nothing_changes_not_even_when_the_instance_exits() -> None:
    worker = seen(STARTUP)
    assert tried(worker, Verdict.SUCCESS) == ["success"]
    worker.observed(Instance(id="a", running=False, exited=True), NOW + 5)
    assert worker.result == "success" and worker.due == inf


@pytest.mark.parametrize("kind", [LIVENESS, READINESS])
def test_an_instance_that_exited_has_failed(kind: ProbeKind) -> None:
    worker = seen(kind)
    worker.observed(Instance(id="a", running=False, exited=True), NOW + 5)
    assert worker.result == "failure" and worker.due == inf


def test_an_instance_the_runtime_lost_sight_of_is_left_alone() -> None:
    worker = seen(LIVENESS)
    worker.observed(Instance(id="a", running=False), NOW + 5)
    assert worker.result == "success" and worker.due == inf


@pytest.mark.parametrize(("kind", "result"), [(LIVENESS, "success"), (STARTUP, "success"), (READINESS, "failure")])
def test_of_a_pod_found_being_deleted_only_readiness_is_probed(kind: ProbeKind, result: str) -> None:
    worker = ProbeWorker(spec(kind), deletion_requested=True)
    worker.observed(running(started=kind is not STARTUP), NOW)
    assert worker.result == result and (worker.due < inf) is (kind is READINESS)


# -- pods.md 10.2.6-10.2.7: when -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(ProbeKind))
def test_the_initial_delay_counts_from_the_start_of_the_container(kind: ProbeKind) -> None:
    instance = running(started_at=NOW - 5, started=kind is not STARTUP)
    assert seen(kind, instance=instance, initial_delay=30).due == NOW + 25


def test_readiness_is_tried_at_once_and_so_is_a_startup_that_may_fail() -> None:
    assert seen(READINESS).due == NOW and seen(STARTUP).due == NOW


def test_a_failure_that_kills_is_not_brought_about_by_haste() -> None:
    assert seen(LIVENESS, period=7).due == NOW + 7
    assert seen(STARTUP, period=7, failure_threshold=1).due == NOW + 7


@pytest.mark.parametrize("kind", [LIVENESS, READINESS])
def test_until_the_container_has_started_only_startup_is_probed(kind: ProbeKind) -> None:
    worker = seen(kind, instance=running(started=False))
    assert worker.due == inf
    worker.observed(running(started=True), NOW + 100)
    assert worker.due <= NOW + 100


def test_startup_is_not_probed_once_the_container_has_started() -> None:
    worker = seen(STARTUP)
    worker.observed(running(started=True), NOW)
    assert worker.due == inf


def test_tries_come_a_period_apart_and_a_long_one_delays_the_next_only_as_far_as_it_must() -> None:
    worker = seen(period=10)
    worker.begin(NOW)
    assert worker.due == inf  # never two at once
    worker.finished("a", Verdict.SUCCESS)
    assert worker.due == NOW + 10
    worker.begin(NOW + 10.5)
    worker.finished("a", Verdict.SUCCESS)
    assert worker.due == NOW + 20
    worker.begin(NOW + 55)  # the process was stopped meanwhile
    worker.finished("a", Verdict.SUCCESS)
    assert worker.due == NOW + 65


# -- pods.md 10.2.8-10.2.10: results ---------------------------------------------------------------------------------

S, F, W, E = Verdict.SUCCESS, Verdict.FAILURE, Verdict.WARNING, Verdict.ERROR


@pytest.mark.parametrize(
    ("verdicts", "results"),
    [
        ([S], ["success"]),
        ([W], ["success"]),
        ([E], ["failure"]),
        ([S, F, F, F], ["success", "success", "success", "failure"]),
        ([S, F, F, S, F, F], ["success"] * 6),
        ([S, F, E, F, E, F], ["success"] * 5 + ["failure"]),
        ([S, F, F, F, F, S], ["success", "success", "success", "failure", "failure", "success"]),
    ],
)
def test_readiness_follows_its_thresholds(verdicts: list[Verdict], results: list[str]) -> None:
    assert tried(seen(failure_threshold=3), *verdicts) == results


def test_successes_count_too() -> None:
    assert tried(seen(success_threshold=2), S, F, S, S) == ["failure", "failure", "failure", "success"]


def test_liveness_goes_on_after_a_success_and_holds_after_a_failure() -> None:
    worker = seen(LIVENESS, failure_threshold=2)
    assert tried(worker, S, F, S, F, F) == ["success"] * 4 + ["failure"]
    assert worker.due == inf


@pytest.mark.parametrize("verdict", [S, F])
def test_any_published_startup_result_is_the_last_of_the_instance(verdict: Verdict) -> None:
    worker = seen(STARTUP, failure_threshold=1)
    assert tried(worker, verdict) == [verdict.value] and worker.due == inf


def test_the_result_of_a_try_of_another_instance_does_not_count() -> None:
    worker = seen(failure_threshold=1)
    worker.begin(NOW)
    assert worker.observed(running("b"), NOW + 1)  # the try is to be abandoned
    worker.finished("a", S)
    assert worker.result == "failure" and worker.container_id == "b"


def test_an_exit_makes_a_try_under_way_pointless() -> None:
    worker = seen(LIVENESS)
    worker.begin(worker.due)
    assert worker.observed(Instance(id="a", running=False, exited=True), NOW + 20)


# -- what one process hands over to the next -------------------------------------------------------------------------


def handed_over(worker: ProbeWorker, now: float = NOW + 100, instance: Instance | None = None) -> ProbeWorker:
    """The worker of the next process, which finds the instance running."""
    heir = ProbeWorker(worker.spec, handed_over=worker.memory)
    heir.observed(
        instance or running(found_running=True, first_delay=0.9, started=worker.spec.kind is not STARTUP), now
    )
    return heir


def test_failures_counted_before_a_restart_count_after_it() -> None:
    worker = seen(LIVENESS, failure_threshold=3)
    tried(worker, Verdict.FAILURE, Verdict.FAILURE)
    heir = handed_over(worker)
    assert heir.result == "success" and tried(heir, Verdict.FAILURE) == ["failure"]


def test_a_result_and_a_hold_are_taken_up() -> None:
    ready = seen(READINESS)
    tried(ready, Verdict.SUCCESS)
    assert handed_over(ready).result == "success" and handed_over(ready).has_answered
    dead = seen(LIVENESS, failure_threshold=1)
    tried(dead, Verdict.FAILURE)
    assert handed_over(dead).result == "failure" and handed_over(dead).due == inf
    up = seen(STARTUP)
    tried(up, Verdict.SUCCESS)
    assert handed_over(up).result == "success" and handed_over(up).due == inf


def test_the_tries_stay_in_step_with_those_before_the_restart() -> None:
    worker = seen(READINESS, period=10, instance=running(started_at=NOW + 3))
    tried(worker, Verdict.SUCCESS)
    assert handed_over(worker, NOW + 101).due == pytest.approx(NOW + 103)
    assert handed_over(worker, NOW + 103.5).due == pytest.approx(NOW + 113)


def test_a_delay_that_had_not_passed_still_holds() -> None:
    worker = seen(LIVENESS, initial_delay=30)
    instance = running(found_running=True, started_at=NOW)
    assert handed_over(worker, NOW + 5, instance).due == NOW + 30


def test_of_another_instance_or_spec_nothing_is_taken_up() -> None:
    worker = seen(LIVENESS, failure_threshold=2)
    tried(worker, Verdict.FAILURE)
    heir = handed_over(worker, instance=running("b"))
    assert tried(heir, Verdict.FAILURE) == ["success"]
    changed = ProbeWorker(spec(LIVENESS, failure_threshold=2, timeout=7), handed_over=worker.memory)
    changed.observed(running(found_running=True), NOW + 50)
    assert changed.result == "" and tried(changed, Verdict.FAILURE) == [""]


def test_an_exit_between_two_looks_is_a_failure_too() -> None:
    worker = seen(READINESS)
    tried(worker, Verdict.SUCCESS)
    assert handed_over(worker, instance=Instance(id="a", running=False, exited=True)).result == "failure"


def test_a_steady_probe_has_nothing_new_to_hand_over() -> None:
    worker = seen(READINESS)
    tried(worker, Verdict.SUCCESS)
    first = worker.memory
    tried(worker, *[Verdict.SUCCESS] * 5)
    assert worker.memory == first
    tried(worker, Verdict.FAILURE)
    assert worker.memory != first


def test_before_it_saw_an_instance_a_worker_passes_on_what_it_was_given() -> None:
    worker = seen(LIVENESS)
    tried(worker, Verdict.FAILURE)
    heir = ProbeWorker(worker.spec, handed_over=worker.memory)
    heir.observed(None, NOW + 50)
    assert heir.memory == worker.memory


# -- whatever happens ------------------------------------------------------------------------------------------------

happenings = st.one_of(
    st.tuples(st.just("pass"), st.floats(0, 40)),
    st.tuples(st.just("end"), st.sampled_from(list(Verdict))),
    st.tuples(st.just("see"), st.sampled_from(["a", "b", "c", None]), st.booleans(), st.booleans(), st.booleans()),
)


@pytest.mark.long
@given(
    kind=st.sampled_from(list(ProbeKind)),
    failures=st.integers(1, 4),
    successes=st.integers(1, 3),
    story=st.lists(happenings, max_size=60),
)
def test_one_try_at_a_time_and_no_result_without_as_many_verdicts(
    kind: ProbeKind, failures: int, successes: int, story: list[tuple[Any, ...]]
) -> None:
    worker = ProbeWorker(spec(kind, failure_threshold=failures, success_threshold=successes, period=5))
    now, begun, row, exited, runs_again = NOW, "", [Verdict.ERROR], False, False
    for what, *details in story:
        before, owner, verdict_came, runs_again = worker.result, worker.container_id, False, False
        match what:
            case "pass":
                now += details[0]
                if worker.due <= now:
                    assert not worker.probing
                    worker.begin(now)
                    begun = worker.container_id
            case "end" if worker.probing:
                worker.finished(begun, details[0])
                verdict_came = True
                if details[0] is not E:
                    counted = F if details[0] is F else S
                    row = [*row, counted] if row[-1] is counted else [counted]
            case "see":
                name, runs, started, found = details
                instance = None
                if name is not None:
                    instance = Instance(
                        id=name, running=runs, exited=not runs, started=started, started_at=now, found_running=found
                    )
                if worker.observed(instance, now):
                    worker.abandoned()
                runs_again = exited and runs
                exited = not runs if instance is not None else exited
        assert worker.due == inf or not worker.probing
        if worker.container_id != owner or runs_again:
            row = [Verdict.ERROR]
        elif worker.result != before and verdict_came:
            needed = failures if worker.result == "failure" else successes
            assert len(row) >= needed and row[-1].value == worker.result
        elif worker.result != before and not runs_again:
            assert exited and worker.result == "failure"
        if kind is LIVENESS and worker.result == "failure":
            assert worker.due == inf
