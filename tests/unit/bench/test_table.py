"""The one list of scenarios and figures is in order."""

from collections import Counter
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.configuration import kubelet_configuration
from bench.figure import QUICK, Plan
from bench.table import SCENARIOS, figures
from shared.config.field_table import FIELDS


def test_every_figure_is_taken_by_one_scenario() -> None:
    keys = Counter(figure.key for scenario in SCENARIOS for figure in scenario.figures)
    assert max(keys.values()) == 1
    assert len(figures()) == len(keys)


def test_floors_that_goals_name_are_measured() -> None:
    known = figures()
    for figure in known.values():
        for goal in figure.goals:
            assert (goal.of in known) == (goal.kind == "floor"), figure.key


def test_the_floor_is_taken_first_and_processes_are_killed_last() -> None:
    assert SCENARIOS[0].floor
    assert SCENARIOS[-1].name == "kills"


def test_the_quick_plan_is_smaller() -> None:
    assert QUICK.rounds < Plan().rounds
    assert QUICK.idle < Plan().idle


@pytest.mark.parametrize("wrong", [["--only", "pods,nothing"], ["--agents", "unknown"]])
def test_a_wrong_word_is_refused_in_one_line(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(wrong)
    except SystemExit as error:
        code = error.code
    assert code
    assert "Traceback" not in capsys.readouterr().err


def test_the_configuration_has_only_keys_that_this_kubelet_knows() -> None:
    document = kubelet_configuration(home=Path("/tmp/bb"), client_ca=Path("/ca"), port=1, healthz_port=2)
    known = {field.key.partition(".")[0] for field in FIELDS} | {"apiVersion", "kind"}
    assert set(document) <= known
    assert document["maxPods"] > 100
