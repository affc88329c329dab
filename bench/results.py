"""Turns samples into one document: for each figure and agent its samples, the ratio, and whether each goal is met.
Pure.

The document is stored as JSON; the table and the charts are made from it alone."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import to_builtins

from bench.agents import BULKHEAD, GO
from bench.figure import Figure
from bench.run import FLOOR, Run
from bench.statistics import Goal, Summary, ratio, summarize, verdict_of

Document = dict[str, Any]


def document(run: Run, figures: Iterable[Figure], facts: Mapping[str, Any]) -> Document:
    """Return the results of a run. A figure without a sample that is not absent has failed."""
    rows = list(figures)
    floors = {
        figure.key: taken for figure in rows if (taken := _summary(run, FLOOR, figure)) and figure.family == FLOOR
    }
    return {
        "facts": dict(facts),
        "plan": to_builtins(run.plan),
        "agents": list(run.agents),
        "rounds_done": max((samples.round for samples in run.sessions), default=0),
        "seconds": run.seconds,
        "failures": list(run.failures),
        "figures": [_row(run, figure, floors) for figure in rows],
        "details": _details(run),
    }


def _row(run: Run, figure: Figure, floors: Mapping[str, Summary]) -> Document:
    ours, theirs = _summary(run, BULKHEAD, figure), _summary(run, GO, figure)
    agents = (FLOOR,) if figure.family == FLOOR else run.agents
    verdicts = [verdict_of(goal, ours, theirs, floors, figure.better) for goal in figure.goals]
    return {
        "key": figure.key,
        "title": figure.title,
        "unit": figure.unit,
        "family": figure.family,
        "better": figure.better,
        "go_136": figure.go_136,
        "agents": {agent: _cell(run, agent, figure) for agent in agents},
        "ratio": ratio(ours.p50, theirs.p50) if ours and theirs else None,
        "goals": [
            {"text": goal_text(v.goal, figure), "met": v.met, "measured": v.measured, "kind": v.goal.kind}
            for v in verdicts
        ],
    }


def _cell(run: Run, agent: str, figure: Figure) -> Document:
    """Return the cell of a figure. `state` is measured, absent or failed."""
    sessions = [samples for samples in run.sessions if samples.agent == agent]
    taken = [(one.round, value) for one in sessions for value in one.values.get(figure.key, [])]
    absent = next((one.absent[figure.key] for one in sessions if figure.key in one.absent), "")
    summary = _summary(run, agent, figure)
    state = "absent" if absent and not taken else "measured" if summary else "failed"
    return {
        "state": state,
        "why": absent,
        "samples": [{"round": number, "value": value} for number, value in taken],
        "summary": to_builtins(summary) if summary else None,
    }


def _summary(run: Run, agent: str, figure: Figure) -> Summary | None:
    taken = [value for one in run.sessions if one.agent == agent for value in one.values.get(figure.key, [])]
    try:
        return summarize(taken, figure.better)
    except ValueError:
        return None


def _details(run: Run) -> Document:
    """Return the details by title, agent and name: their values, one of each round."""
    found: Document = {}
    for samples in run.sessions:
        for title, values in samples.details.items():
            for name, value in values.items():
                found.setdefault(title, {}).setdefault(samples.agent, {}).setdefault(name, []).append(value)
    return found


def goal_text(goal: Goal, figure: Figure) -> str:
    """Return the text of a goal, such as `p50 ≤ 0.28 ×`, `max ≤ 3 s`, `p50 ≤ floor + 0.10 s`."""
    sign = "≤" if figure.better == "lower" else "≥"
    if goal.kind == "ratio":
        return f"{goal.stat} {sign} {goal.limit:g} ×"
    if goal.kind == "floor":
        return f"{goal.stat} {sign} floor + {goal.limit:.2f} {figure.unit}"
    return f"{goal.stat} {sign} {goal.limit:g} {figure.unit}".rstrip()


def problems(results: Document) -> list[str]:
    """Return a line for every scenario or figure that failed; empty = all were measured."""
    lines = list(results["failures"])
    for row in results["figures"]:
        for agent, cell in row["agents"].items():
            if cell["state"] == "failed" and not any(row["title"] in line and agent in line for line in lines):
                lines.append(f"{agent}: {row['title']}: no sample")
    return lines
