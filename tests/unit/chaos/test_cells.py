"""The matrix is complete: every service alone, in pairs, with supervisord, and every crash point there is."""

import sys
from pathlib import Path

import pytest

from bus.messages.streams import SERVICES
from tests.chaos.__main__ import main
from tests.chaos.cells import (
    SUPERVISORD,
    UNDISTURBED,
    Cell,
    Hit,
    Moment,
    Trigger,
    chosen,
    matrix,
    pairs,
    points,
    singles,
    specials,
)
from tests.support.source.crash_points import NOT_TRIED, OF_OTHER_TESTS, OF_THE_MATRIX, SIMULATED, points_in_code

CHECKOUT = Path(__file__).resolve().parents[3]


def test_names_contain_victims_kill_and_moment() -> None:
    assert Cell(("podsync",)).name == "podsync/kill/idle"
    assert Cell(("pleg", "status"), moment=Moment.MID_FLIGHT).name == "pleg+status/kill/mid-flight"
    assert Cell(("server",), Hit.STOP).name == "server/stop/idle"
    assert Cell((SUPERVISORD, *SERVICES)).name == "everything/kill/idle"
    assert UNDISTURBED[0].name == "none/none/idle"
    update = Cell(("volume",), moment=Moment.POINT, point="volume.writer.rename", trigger=Trigger.UPDATE)
    assert update.name == "volume/point/volume.writer.rename/update"


def test_no_two_cells_have_one_name() -> None:
    names = [cell.name for cell in matrix(with_points=True, with_pairs=True)]
    assert len(names) == len(set(names))


def test_each_service_is_killed_idle_and_in_the_middle_and_is_stopped() -> None:
    names = {cell.name for cell in singles()}
    assert names == {f"{s}/{how}" for s in SERVICES for how in ("kill/idle", "kill/mid-flight", "stop/idle")}


def test_all_pairs_are_there() -> None:
    idle = [cell for cell in pairs() if cell.moment is Moment.IDLE and not cell.hits(SUPERVISORD)]
    assert len({frozenset(cell.victims) for cell in idle}) == 21
    assert {"containerd", "api-server", SUPERVISORD} <= {victim for cell in specials() for victim in cell.victims}


def test_a_test_kills_at_every_crash_point_in_the_code() -> None:
    others = [point for points in OF_OTHER_TESTS.values() for point in points]
    tried = {*OF_THE_MATRIX, *SIMULATED, *others}
    assert points_in_code() == tried | NOT_TRIED.keys()
    assert not tried & NOT_TRIED.keys(), "tried after all"


@pytest.mark.parametrize("name", OF_OTHER_TESTS)
def test_the_file_names_the_points_at_which_it_kills(name: str) -> None:
    text = (CHECKOUT / name).read_text()
    for point in OF_OTHER_TESTS[name]:
        parts = point.split(".")
        tails = (".".join(parts[i:]) for i in range(1, len(parts)))
        assert f'"{point}"' in text or any(f'"{tail}"' in text for tail in tails), point


def test_a_point_belongs_to_the_service_it_is_named_after() -> None:
    assert {cell.victims[0] for cell in points()} <= set(SERVICES)
    assert all(cell.is_one_process for cell in points())


def test_choosing_by_name_keeps_what_to_compare_with() -> None:
    cells = matrix(with_points=False, with_pairs=False)
    idle = chosen(cells, "podsync/kill/idle")
    assert [cell.name for cell in idle] == ["none/none/idle", "podsync/kill/idle"]
    both = chosen(cells, "podsync/kill/*")
    assert [cell.name for cell in both] == [
        "none/none/idle",
        "none/none/mid-flight",
        "podsync/kill/idle",
        "podsync/kill/mid-flight",
    ]


def test_the_brief_matrix_has_what_depends_on_who_starts_the_services() -> None:
    names = {cell.name for cell in matrix(with_points=True, with_pairs=True, brief=True)}
    assert {"supervisord/kill/idle", "everything/kill/mid-flight", "pleg/kill/idle"} <= names
    assert not {name for name in names if "/stop/" in name or "/point/" in name}


def test_a_name_that_no_cell_has_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["chaos", "--only", "podsinc/*", "--list"])
    assert main() == 2
    assert "no cell is named podsinc/*" in capsys.readouterr().err
