"""Draws the charts of a run as SVG files: one with all ratios, and one for each family of figures with every sample as
a dot."""

from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from bench import report
from bench.results import Document

_COLOURS = {"floor": "tab:gray", "go": "tab:blue", "bulkhead": "tab:orange"}


def write_plots(results: Document, directory: Path) -> list[Path]:
    """Write `ratios.svg` and `<family>.svg`, and return the files. A chart without a sample is left out."""
    written = []
    ratios = [row for row in results["figures"] if row["ratio"]]
    families: dict[str, list[Document]] = {}
    for row in results["figures"]:
        if any(cell["samples"] for cell in row["agents"].values()):
            families.setdefault(row["family"], []).append(row)
    # Keeps text as text, and the ids the same in each run.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "bench"}):
        if ratios:
            written.append(_save(_ratios(ratios), directory / "ratios.svg"))
        for family, rows in families.items():
            written.append(_save(_dots(rows), directory / f"{family}.svg"))
    return written


def _ratios(rows: list[Document]) -> Figure:
    """Return a bar for each figure, to the left of the line where Bulkhead has less than the Go kubelet; green =
    better.
    """
    drawing = Figure(figsize=(9, 1.2 + 0.3 * len(rows)), layout="constrained")
    axes = drawing.subplots()
    titles, values = [report.title(row) for row in rows], [row["ratio"] for row in rows]
    colours = ["tab:green" if (row["ratio"] <= 1) == (row["better"] == "lower") else "tab:red" for row in rows]
    bars = axes.barh(titles, [value - 1 for value in values], left=1, color=colours)
    axes.bar_label(bars, [report.times(value) for value in values], padding=3)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1)
    axes.margins(x=0.2)
    axes.invert_yaxis()
    axes.set_xlabel("Bulkhead in times the Go kubelet (medians; ↑ = more is better)")
    return drawing


def _dots(rows: list[Document]) -> Figure:
    """Return a panel for each figure, with a column of dots and a line at the median for each agent."""
    columns = min(3, len(rows))
    lines = -(-len(rows) // columns)
    drawing = Figure(figsize=(4.2 * columns, 3.2 * lines), layout="constrained")
    panels = drawing.subplots(lines, columns, squeeze=False).flat
    for axes, row in zip(panels, rows, strict=False):
        agents = list(row["agents"])
        for place, agent in enumerate(agents):
            values = [sample["value"] for sample in row["agents"][agent]["samples"]]
            colour = _COLOURS.get(agent, "black")
            axes.scatter([place] * len(values), values, color=colour, alpha=0.6, gid=f"dots-{row['key']}-{agent}")
            if values:
                axes.hlines(row["agents"][agent]["summary"]["p50"], place - 0.25, place + 0.25, color=colour)
        axes.set_title(row["title"], fontsize=9, wrap=True)
        axes.set_ylabel(row["unit"])
        axes.set_xticks(range(len(agents)), [report.NAMES.get(agent, agent) for agent in agents])
        axes.set_xlim(-0.6, len(agents) - 0.4)
        axes.set_ylim(bottom=0)
    for axes in list(drawing.axes)[len(rows) :]:
        axes.set_visible(False)
    return drawing


def _save(drawing: Figure, path: Path) -> Path:
    drawing.savefig(path, metadata={"Date": None})
    return path
