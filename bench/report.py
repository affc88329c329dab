"""Forms the table for readers: a row for each figure with each agent's median / p90 / max, the ratio and the goals.
Pure."""

from typing import Any

from bench.results import Document, problems

NAMES = {"go": "Go kubelet", "bulkhead": "Bulkhead", "floor": "floor"}
_MARKS = {True: "met", False: "MISSED", None: "unknown"}


def markdown(results: Document) -> str:
    """Return the report."""
    facts, plan = results["facts"], results["plan"]
    lines = ["# Benchmark", "", *(f"- {name}: {value}" for name, value in facts.items())]
    lines += [f"- rounds: {plan['rounds']}, alternating; it took {results['seconds'] / 60:.1f} minutes", ""]
    if failed := problems(results):
        lines += ["**The run failed:**", "", *(f"- {line}" for line in failed), ""]
    lines += [table(results), "", *_legend(), ""]
    for heading, by_agent in results["details"].items():
        lines += ["## " + heading, "", *_detail(by_agent), ""]
    return "\n".join(lines)


def table(results: Document) -> str:
    """Return the rows, aligned so that a terminal shows them well."""
    agents = results["agents"]
    heads = ["figure", "unit", *(NAMES.get(agent, agent) for agent in agents), "ratio", "goal", "Go 1.36"]
    rows = [heads, ["-" * len(head) for head in heads]]
    for row in results["figures"]:
        rows += _rows(row, agents)
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    widths = [max(width, 3) for width in widths]
    rows[1] = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    )


def _rows(row: Document, agents: list[str]) -> list[list[str]]:
    if "floor" in row["agents"]:
        cells = [_cell(row["agents"]["floor"]), *[""] * (len(agents) - 1)]
    else:
        cells = [_cell(row["agents"].get(agent)) for agent in agents]
    goals = [_goal(goal) for goal in row["goals"]] or [""]
    first = [title(row), row["unit"], *cells, times(row["ratio"]), goals[0], row["go_136"]]
    return [first, *(["", "", *[""] * len(agents), "", goal, ""] for goal in goals[1:])]


def _cell(cell: Document | None) -> str:
    if cell is None:
        return "not run"
    if cell["state"] != "measured":
        return str(cell["state"])
    summary = cell["summary"]
    return " / ".join(figure(summary[stat]) for stat in ("p50", "p90", "max")) + f" ({summary['count']})"


def title(row: Document) -> str:
    """Return a figure's title, marked where more is better."""
    return str(row["title"]) + (" ↑" if row["better"] == "higher" else "")


def times(value: float | None) -> str:
    """Return a ratio with two significant digits; "" for none."""
    return "" if value is None else f"{value:.2f}" if value >= 0.1 or value == 0 else f"{value:.2g}"


def _goal(goal: Document) -> str:
    measured = "" if goal["measured"] is None else f": {_measured(goal)}"
    return f"{_MARKS[goal['met']]} {goal['text']}{measured}"


def _measured(goal: Document) -> str:
    value = figure(goal["measured"])
    return f"floor {'+' if goal['measured'] >= 0 else ''}{value}" if goal["kind"] == "floor" else value


def figure(value: float) -> str:
    """Return a figure with three significant digits and no exponent."""
    if value == 0:
        return "0"
    digits = max(0, 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0)
    return f"{value:.{digits}f}"


def _detail(by_agent: dict[str, dict[str, list[float]]]) -> list[str]:
    names = sorted({name for values in by_agent.values() for name in values})
    heads = ["", *(NAMES.get(agent, agent) for agent in by_agent)]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for name in names:
        cells = [_values(by_agent[agent].get(name)) for agent in by_agent]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return lines


def _values(values: list[float] | None) -> str:
    return "" if values is None else ", ".join(figure(value) for value in values)


def _legend() -> list[str]:
    return [
        "Cells: median / p90 / max (number of samples). ↑ = more is better: p90 and max are counted from the bad side.",
        "Ratio: Bulkhead's median in times the Go kubelet's. `absent`: the agent has not got it. Go 1.36: measured",
        "elsewhere on a machine of this kind with containerd 2.1, for reference. The floor belongs to no agent:",
        "its rows are in the first column.",
    ]


def outcome(results: Document) -> str:
    """Return a line with the number of goals that were met, missed, or are unknown."""
    marks: list[Any] = [goal["met"] for row in results["figures"] for goal in row["goals"]]
    return f"goals: {marks.count(True)} met, {marks.count(False)} missed, {marks.count(None)} unknown"
