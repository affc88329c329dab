"""How a run is shown: one line per cell while it goes on, a Markdown table and JSON at its end. Pure."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tests.chaos.cells import Cell
from tests.chaos.costs import Costs, seconds

_HEAD = (
    "cell",
    "new pod s",
    "back s",
    "in sync s",
    "restarted",
    "pod flaps",
    "node flaps",
    "lease s",
    "exec lost",
    "differs",
)
_WIDTH = 52


@dataclass(frozen=True)
class Row:
    """One cell as it went; `complaints` empty = it passed."""

    front: str
    cell: Cell
    costs: Costs
    complaints: tuple[str, ...]


def heading(front: str) -> str:
    """The first line of a front's table."""
    return "\n".join(["", f"front: {front}", _line([*_HEAD, ""])])


def line(row: Row) -> str:
    """One line per cell; what it must not have cost follows below."""
    line = _line([*_figures(row), "ok" if not row.complaints else "FAILED"])
    return "\n".join([line, *(f"    ! {complaint}" for complaint in row.complaints)])


def markdown(rows: Sequence[Row], title: str) -> str:
    """The whole matrix: a table per front, and what failed."""
    parts = [f"# {title}", ""]
    for front in dict.fromkeys(row.front for row in rows):
        of_front = [row for row in rows if row.front == front]
        parts += [f"## Started by `{front}`", "", _bars(_HEAD), _bars(["---", *["---:"] * (len(_HEAD) - 1)])]
        parts += [_bars([*_figures(row)]) for row in of_front]
        failed = [f"- `{row.cell.name}`: {complaint}" for row in of_front for complaint in row.complaints]
        parts += ["", *(failed or ["No cell cost anything it must not."]), ""]
    return "\n".join(parts)


def as_json(rows: Sequence[Row]) -> str:
    """The same for programs: a list of cells with their figures."""
    cells = [
        {"front": row.front, "cell": row.cell.name, **asdict(row.costs), "complaints": row.complaints} for row in rows
    ]
    return json.dumps(cells, indent=1, ensure_ascii=False) + "\n"


def summary(rows: Sequence[Row]) -> str:
    """The closing line."""
    failed = [f"{row.front}: {row.cell.name}" for row in rows if row.complaints]
    single = [row.costs.new_pod for row in rows if row.cell.is_one_process and row.costs.new_pod is not None]
    slowest = f"; one process: new pod Ready after at most {max(single):.2f} s" if single else ""
    return f"{len(rows)} cells, {len(failed)} failed{slowest}" + "".join(f"\n    {name}" for name in failed)


def _figures(row: Row) -> list[str]:
    costs = row.costs
    counts = [len(costs.restarted), len(costs.pod_flaps), len(costs.node_flaps)]
    gap = "–" if costs.lease_gap is None else f"{costs.lease_gap:.1f}"
    lost = len(costs.sessions_lost)
    return [
        row.cell.name,
        seconds(costs.new_pod),
        seconds(costs.back),
        seconds(costs.in_sync),
        *(str(count) for count in counts),
        gap,
        str(lost),
        str(len(costs.differences)),
    ]


def _line(values: Sequence[str]) -> str:
    return " ".join([f"{values[0]:<{_WIDTH}}", *(f"{value:>10}" for value in values[1:])])


def _bars(values: Sequence[str]) -> str:
    return "| " + " | ".join(values) + " |"
