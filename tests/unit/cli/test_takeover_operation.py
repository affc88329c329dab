"""A takeover and a give-back on a simulated node: killed at any call, the node ends with one kubelet."""

import pytest

from services.cli.takeover.operation import DONE, INCOMPLETE, INTERRUPTED, REFUSED, ROLLED_BACK, Operation, Outcome
from services.cli.takeover.plan import Intent, Kubelet, Step, intent_after
from services.cli.takeover.record import Record
from tests.unit.cli.simulated_node import KilledError, Machine, SimulatedNode

FIRST = Record(intent=Intent.TAKEOVER, step=Step.WRITE, words=("/usr/bin/kubelet", "$KUBELET_ARGS"))


def run(command: Intent, machine: Machine, **faults: object) -> tuple[Outcome, SimulatedNode]:
    """One command, as the command line runs it."""
    node = SimulatedNode(machine, **faults)  # type: ignore[arg-type]
    operation = Operation(node, machine.record or FIRST, 10.0, lambda line: None)
    saved = machine.record.intent if machine.record and not machine.record.done else None
    match intent_after(saved, command):
        case Intent.TAKEOVER:
            return operation.take_over(), node
        case Intent.ROLL_BACK:
            return operation.roll_back(machine.record.reason if machine.record else ""), node
    return operation.give_back(), node


def killed(command: Intent, machine: Machine, at: int, *, after: bool) -> bool:
    """Run the command with a kill; whether it came to that."""
    try:
        run(command, machine, kill_at=at, after=after)
    except KilledError:
        return True
    return False


def taken() -> Machine:
    machine = Machine()
    assert run(Intent.TAKEOVER, machine)[0].code == DONE
    return machine


def is_given_back(machine: Machine) -> bool:
    return (machine.running, machine.loaded, machine.drop_in, machine.record) == (
        Kubelet.OWN, Kubelet.OWN, None, None,
    )  # fmt: skip


def calls(command: Intent, machine: Machine) -> range:
    """The numbers of the calls that the command makes when nothing ends it, and of one that it does not make."""
    return range(1, len(run(command, machine)[1].calls) + 2)


def rolled_back() -> Machine:
    return Machine(works={Kubelet.OWN})


@pytest.mark.parametrize("notices", [False, True])
def test_a_takeover_saves_each_step_before_it_acts(notices: bool) -> None:
    machine = Machine(notices=notices)
    outcome, node = run(Intent.TAKEOVER, machine)
    assert (outcome.code, outcome.line) == (DONE, "")
    assert [call for call in node.calls if call != "observe"] == [
        "save", "write", "save", "reload", "save", "restart", "save",
    ]  # fmt: skip
    assert machine.running is Kubelet.BULKHEAD
    assert machine.record is not None
    assert machine.record.done


def test_a_give_back_leaves_nothing() -> None:
    machine = taken()
    outcome, _ = run(Intent.GIVE_BACK, machine)
    assert outcome.code == DONE
    assert is_given_back(machine)
    assert machine.starts == [Kubelet.BULKHEAD, Kubelet.OWN]


def test_a_second_takeover_or_give_back_restarts_nothing() -> None:
    machine = taken()
    assert run(Intent.TAKEOVER, machine)[0].code == DONE
    assert machine.starts == [Kubelet.BULKHEAD]
    assert run(Intent.GIVE_BACK, machine)[0].code == DONE
    assert run(Intent.GIVE_BACK, machine)[0].code == DONE
    assert machine.starts == [Kubelet.BULKHEAD, Kubelet.OWN]


@pytest.mark.share(4)
@pytest.mark.parametrize("boots", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", calls(Intent.TAKEOVER, Machine()))
def test_a_takeover_killed_at_any_call_is_continued_or_undone(at: int, after: bool, boots: bool) -> None:
    for command in (Intent.TAKEOVER, Intent.GIVE_BACK):
        machine = Machine()
        was_killed = killed(Intent.TAKEOVER, machine, at, after=after)
        assert machine.running in (Kubelet.OWN, Kubelet.BULKHEAD)
        if boots:
            machine.boot()
            assert machine.running in (Kubelet.OWN, Kubelet.BULKHEAD)
        assert was_killed or machine.running is Kubelet.BULKHEAD
        assert run(command, machine)[0].code == DONE
        if command is Intent.TAKEOVER:
            assert (machine.running, machine.loaded) == (Kubelet.BULKHEAD, Kubelet.BULKHEAD)
        else:
            assert is_given_back(machine)


@pytest.mark.share(4)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", calls(Intent.GIVE_BACK, taken()))
def test_a_give_back_killed_at_any_call_is_continued_or_undone(at: int, after: bool) -> None:
    for command in (Intent.TAKEOVER, Intent.GIVE_BACK):
        machine = taken()
        killed(Intent.GIVE_BACK, machine, at, after=after)
        assert machine.running in (Kubelet.OWN, Kubelet.BULKHEAD)
        assert run(command, machine)[0].code == DONE
        assert machine.running is (Kubelet.BULKHEAD if command is Intent.TAKEOVER else Kubelet.OWN)


@pytest.mark.share(4)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", calls(Intent.TAKEOVER, rolled_back()))
def test_a_roll_back_killed_at_any_call_is_completed_by_either_command(at: int, after: bool) -> None:
    for command in (Intent.TAKEOVER, Intent.GIVE_BACK):
        machine = rolled_back()
        killed(Intent.TAKEOVER, machine, at, after=after)
        outcome, _ = run(command, machine)
        assert is_given_back(machine)
        if command is Intent.GIVE_BACK:
            assert outcome.code == DONE
        else:
            assert outcome.code in (ROLLED_BACK, REFUSED)


def test_ctrl_c_at_any_call_returns_to_the_units_kubelet(subtests: pytest.Subtests) -> None:
    for at in calls(Intent.TAKEOVER, Machine()):
        with subtests.test(f"{at!r:.80}"):
            machine = Machine()
            outcome, node = run(Intent.TAKEOVER, machine, interrupt_at=at)
            if len(node.calls) < at or outcome.code == DONE:
                assert machine.running is Kubelet.BULKHEAD
            else:
                assert (outcome.code, outcome.line) == (INTERRUPTED, "interrupted")
                assert is_given_back(machine)


def test_a_takeover_that_was_complete_is_not_rolled_back_by_a_second_one() -> None:
    for faults in ({}, {"interrupt_at": 3}):
        machine = taken()
        machine.works = {Kubelet.OWN}
        outcome, _ = run(Intent.TAKEOVER, machine, **faults)
        assert outcome.code == (INTERRUPTED if faults else REFUSED)
        assert "not rolled back" in outcome.line
        assert machine.starts == [Kubelet.BULKHEAD]
        assert machine.record is not None
        assert (machine.record.intent, machine.record.done) == (Intent.TAKEOVER, True)


def test_a_bulkhead_that_a_killed_takeover_left_is_started_again_where_it_is_not_ready() -> None:
    """The operator has corrected the cause meanwhile; the running agent has the old variables, and its back-off."""
    machine = Machine(fault=True)
    assert killed(Intent.TAKEOVER, machine, 12, after=False)
    assert machine.starts == [Kubelet.BULKHEAD]
    machine.fault = False
    outcome, node = run(Intent.TAKEOVER, machine)
    assert (outcome.code, machine.running, node.calls.count("wait")) == (DONE, Kubelet.BULKHEAD, 0)
    assert machine.starts == [Kubelet.BULKHEAD, Kubelet.BULKHEAD]


def test_one_that_is_ready_is_not_started_again() -> None:
    machine = Machine(end_seconds=3.0)
    assert killed(Intent.TAKEOVER, machine, 12, after=False)
    assert machine.record is not None and machine.record.step is Step.WAIT
    machine.end_seconds = 0.0
    assert run(Intent.TAKEOVER, machine)[0].code == DONE
    assert machine.starts == [Kubelet.BULKHEAD]


def test_a_unit_that_needs_a_reload_after_each_reload_is_taken_over_and_given_back() -> None:
    machine = Machine(always_needs_reload=True)
    for intent, kubelet in ((Intent.TAKEOVER, Kubelet.BULKHEAD), (Intent.GIVE_BACK, Kubelet.OWN)):
        outcome, node = run(intent, machine)
        assert (outcome.code, machine.running, node.calls.count("reload")) == (DONE, kubelet, 3)


def test_a_node_that_does_not_become_ready_is_rolled_back_at_the_deadline() -> None:
    machine = Machine(works={Kubelet.OWN})
    outcome, node = run(Intent.TAKEOVER, machine)
    assert outcome.code == ROLLED_BACK
    assert outcome.line == "not within 10 s: the node is not Ready; the last line of takeover.log is: E1123 no"
    assert is_given_back(machine)
    assert machine.starts == [Kubelet.BULKHEAD, Kubelet.OWN]
    assert node.calls.count("wait") == 10


def test_a_kubelet_that_was_stopped_and_comes_back_without_another_restart_is_rolled_back_to() -> None:
    """The commands before the main process last until the drop-in is gone."""
    machine = Machine(prepares=True)
    outcome, node = run(Intent.TAKEOVER, machine)
    assert (outcome.code, node.calls.count("restart")) == (ROLLED_BACK, 1)
    assert is_given_back(machine)
    assert machine.starts == [Kubelet.OWN]


def test_a_restart_that_systemd_refuses_has_stopped_nothing() -> None:
    machine = Machine(refuses=True)
    outcome, node = run(Intent.TAKEOVER, machine)
    assert (outcome.code, outcome.line) == (REFUSED, "kubelet.service: Access denied")
    assert is_given_back(machine)
    assert (machine.starts, node.calls.count("restart")) == ([], 1)


def test_the_end_of_the_earlier_kubelet_is_not_counted_up_to_two_minutes() -> None:
    machine = Machine(end_seconds=100.0)
    assert run(Intent.TAKEOVER, machine)[0].code == DONE
    machine = Machine(end_seconds=1000.0)
    outcome, node = run(Intent.TAKEOVER, machine)
    assert outcome.code in (ROLLED_BACK, INCOMPLETE)
    assert node.calls.count("wait") >= 120


def test_a_later_drop_in_that_names_another_program_is_found_before_the_restart() -> None:
    machine = Machine(overridden=True)
    outcome, _ = run(Intent.TAKEOVER, machine)
    assert outcome.code == REFUSED
    assert "systemctl cat" in outcome.line
    assert is_given_back(machine)
    assert machine.starts == []


def test_a_full_disk_changes_nothing() -> None:
    machine = Machine(full=True)
    outcome, _ = run(Intent.TAKEOVER, machine)
    assert outcome.code == REFUSED
    assert "No space left" in outcome.line
    assert is_given_back(machine)
    assert machine.starts == []


def test_a_disk_that_fills_after_the_takeover_does_not_stop_the_give_back() -> None:
    machine = taken()
    machine.full = True
    assert run(Intent.GIVE_BACK, machine)[0].code == DONE
    assert is_given_back(machine)


def test_a_roll_back_that_does_not_succeed_stays_recorded() -> None:
    machine = Machine(works=set())
    outcome, _ = run(Intent.TAKEOVER, machine)
    assert outcome.code == INCOMPLETE
    assert machine.record is not None
    assert machine.record.intent is Intent.ROLL_BACK
    assert machine.running is Kubelet.OWN
    machine.works = {Kubelet.OWN}
    assert run(Intent.GIVE_BACK, machine)[0].code == DONE
    assert is_given_back(machine)
