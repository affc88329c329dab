"""A run is shown with every figure, and what failed is named; a figure that is missing is a dash, never a zero."""

import json

from tests.chaos import report
from tests.chaos.cells import Cell
from tests.chaos.costs import Costs

GOOD = report.Row("kubelet", Cell(("pleg",)), Costs(new_pod=1.234, back=1.0, in_sync=2.0, lease_gap=2.1), ())
BAD = report.Row("kubelet", Cell(("podsync",)), Costs(trouble="waited 90 s"), ("waited 90 s",))


def test_a_line_shows_the_figures_and_the_verdict() -> None:
    assert report.line(GOOD).split() == ["pleg/kill/idle", "1.23", "1.00", "2.00", "0", "0", "0", "2.1", "0", "0", "ok"]
    assert len(report.line(GOOD)) == len(report.heading("kubelet").splitlines()[-1])


def test_what_failed_stands_below_its_line() -> None:
    first, second = report.line(BAD).splitlines()
    assert first.split()[1:5] == ["–", "–", "–", "0"]
    assert first.endswith("FAILED")
    assert second == "    ! waited 90 s"


def test_the_page_and_the_json_name_every_cell() -> None:
    page = report.markdown([GOOD, BAD], "Kill matrix")
    assert "| pleg/kill/idle | 1.23 |" in page
    assert "- `podsync/kill/idle`: waited 90 s" in page
    cells = json.loads(report.as_json([GOOD, BAD]))
    assert [(cell["cell"], cell["new_pod"], cell["complaints"]) for cell in cells] == [
        ("pleg/kill/idle", 1.234, []),
        ("podsync/kill/idle", None, ["waited 90 s"]),
    ]


def test_the_summary_counts_and_names() -> None:
    text = report.summary([GOOD, BAD])
    assert text.startswith("2 cells, 1 failed; one process: new pod Ready after at most 1.23 s")
    assert "kubelet: podsync/kill/idle" in text
