"""Writes docs/metrics.md from the declarations in the code and the reference: `python -m tools.metrics_page`.

A test compares the page with both.
"""

import importlib
import pkgutil
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import bus
import services
import shared
from services.server.core.metrics.gathered_metrics import OF_THE_AGENT
from shared.metrics.family import Family, Kind

CHECKOUT = Path(__file__).resolve().parent.parent
PAGE, REFERENCE = CHECKOUT / "docs/metrics.md", CHECKOUT / "docs/reference/node.md"
KINDS = {"C": Kind.COUNTER, "G": Kind.GAUGE, "H": Kind.HISTOGRAM}

_ROW = re.compile(r"^\| (★ )?([^|]+) \| ([CGH])(?:\{([^}]*)\}| same)?[^|]*\| ?([^|]*)\|$")
_ENTRY_POINTS = "__main__"
_HEAD = """\
# Metrics

All metrics that server shows, generated from the declarations in the code by `python -m tools.metrics_page`. The text
format of Prometheus 0.0.4, compressed where the client takes gzip.

Each process counts its own. server requests the counters of all, waits at most a second, and shows the sums as those
of one kubelet. A process that does not answer has `bulkhead_scrape_missing` 1; its counters keep their last values and
its gauges are left out.

On `/metrics` counters continue across a restart of any process: server saves them in `metrics.json` in the run
directory before it answers. They begin again with a new supervisord, as after a boot or an upgrade, and after
`systemctl reload`. `process_start_time_seconds` is the start of the first process that they count.
`process_*` is the sum of all processes; in `process_resident_memory_bytes` a page of memory that several processes
share counts once. `/metrics/slis` begins again when server restarts. `/metrics/probes` has a
`process_start_time_seconds` of its own: the start of pleg, with which its series begin. There are no `go_*` metrics:
dashboards show the tasks of a Go program in them.

A metric has a bounded number of series in each process. Observations beyond it are not counted, and
`bulkhead_metric_observations_dropped_total` shows their number.

Who may read the pages: `get` on `nodes/metrics`. The read-only port shows them without credentials.
"""
_ABSENT = """\
## The kubelet's metrics that are absent

"""
_USED = "Those that dashboards and alerts use often are bold.\n\n"
_UNUSED = "None of them is one that the common dashboards and alerts for kubelets use.\n\n"


@cache
def declared() -> dict[str, Family]:
    """Return every family that a module of the product declares, by name."""
    found: dict[str, Family] = {}
    for package in (bus, services, shared):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(_ENTRY_POINTS):
                for value in vars(importlib.import_module(module.name)).values():
                    if isinstance(value, Family) and found.setdefault(value.name, value) != value:
                        raise ValueError(f"{value.name} is declared twice")
    for name, source, _, text in OF_THE_AGENT:
        found[name] = Family(name, found[source].kind, text)
    return dict(sorted(found.items()))


@cache
def reference() -> dict[str, tuple[Kind, tuple[str, ...], str]]:
    """Return kind, labels and notes by name, from the tables of node.md 9.1 and 9.3 and the lists of 9.5. A name that
    begins with an underscore continues the first name of its row: each possible continuation is a name. A row with
    labels and the note "same" has the notes of the row before."""
    rows: dict[str, tuple[Kind, tuple[str, ...], str]] = {}
    labels: tuple[str, ...] = ()
    notes = ""
    section = REFERENCE.read_text(encoding="utf-8").partition("## 9. Metrics")[2].partition("### 9.4")[0]
    for line in section.splitlines():
        if (row := _ROW.match(line)) is None:
            continue
        _, names, kind, listed, found = row.groups()
        notes = notes if listed and found.strip() == "same" else found
        if listed or " same " not in line:
            labels = tuple(re.sub(r'="[^}]*', "", listed).split(",")) if listed else ()
        first = ""
        for name in re.split(r", | / ", names.replace("★ ", "")):
            first = first or name
            parts = first.split("_")
            begins = ["_".join(parts[:count]) for count in range(2, len(parts))] if name.startswith("_") else [""]
            rows.update({begin + name: (KINDS[kind], labels, notes) for begin in begins})
    other = REFERENCE.read_text(encoding="utf-8").partition("### 9.5")[2].partition("## Appendix")[0]
    for name, kind, listed in re.findall(r"(prober_\w+|kubernetes_\w+) ([CGH])\{([^}]*)\}", other):
        rows[name] = KINDS[kind], tuple(re.sub(r"=[^,]*| ", "", listed).split(",")), ""
    return rows


def page() -> str:
    """Return the page."""
    families = list(declared().values())
    kubelets = [family for family in families if not family.name.startswith("bulkhead_")]
    own = [family for family in families if family.name.startswith("bulkhead_")]
    tables = f"## The kubelet's metrics\n\n{_table(kubelets)}\n\n## Metrics of Bulkhead\n\n{_table(own)}\n"
    absent = _absent()
    return f"{_HEAD}\n{tables}\n{_ABSENT}{_USED if '**' in absent else _UNUSED}{absent}\n"


def _table(families: Iterable[Family]) -> str:
    rows = ["| metric | type | labels | path | |", "|---|---|---|---|---|"]
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{family.name}` | {family.kind} | {labels} | `{family.path}` | {family.help} |")
    return "\n".join(rows)


def _absent() -> str:
    """Return the rows of the reference's tables in which a metric is named that no module declares."""
    lines = []
    section = REFERENCE.read_text(encoding="utf-8").partition("## 9. Metrics")[2].partition("### 9.4")[0]
    for line in section.splitlines():
        if (row := _ROW.match(line)) is None or not line.startswith("| "):
            continue
        names = row[2].replace("★ ", "").strip()
        if re.split(r", | / ", names)[0] not in declared():
            lines.append(f"- **{names}**" if row[1] else f"- {names}")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
