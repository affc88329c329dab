"""Every metric with a name of the kubelet is declared as node.md 9 lists it: type, labels and buckets."""

import importlib
import pkgutil
import re
from functools import cache

import pytest

import bus
import services
import shared
from shared.metrics.family import DEFAULT_BUCKETS, Family, Kind, exponential
from tests.architecture.checkout import CHECKOUT

REFERENCE = CHECKOUT / "docs/reference/node.md"
KINDS = {"C": Kind.COUNTER, "G": Kind.GAUGE, "H": Kind.HISTOGRAM}
PROGRAMS = "__main__"
ROW = re.compile(r"^\| (?:★ )?([^|]+) \| ([CGH])(?:\{([^}]*)\}| same)?[^|]*\| ?([^|]*)\|$")


@cache
def declared() -> dict[str, Family]:
    """Every family that a module of the product holds, by name."""
    found: dict[str, Family] = {}
    for package in (bus, services, shared):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(PROGRAMS):
                for value in vars(importlib.import_module(module.name)).values():
                    if isinstance(value, Family):
                        assert found.setdefault(value.name, value) == value, f"{value.name} is declared twice"
    return found


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split()))


@cache
def reference() -> dict[str, tuple[Kind, tuple[str, ...], str]]:
    """Name -> kind, labels and the notes, of the tables of node.md 9.1 and 9.3 and the lists of 9.5. A name that begins
    with an underscore goes on from the first one of its row: each place where it can is a name."""
    section = REFERENCE.read_text().partition("## 9. Metrics")[2].partition("## Appendix")[0]
    rows: dict[str, tuple[Kind, tuple[str, ...], str]] = {}
    labels: tuple[str, ...] = ()
    for line in section.splitlines():
        if (row := ROW.match(line)) is None:
            continue
        names, kind, listed, notes = row.groups()
        labels = (
            labels if " same " in line else tuple(re.sub(r'="[^}]*', "", listed or "").split(",")) if listed else ()
        )
        first = ""
        for name in re.split(r", | / ", names.replace("★ ", "")):
            first = first or name
            parts = first.split("_")
            begins = ["_".join(parts[:count]) for count in range(2, len(parts))] if name.startswith("_") else [""]
            rows.update({begin + name: (KINDS[kind], labels, notes) for begin in begins})
    for name, kind, listed in re.findall(r"(prober_\w+|kubernetes_\w+) ([CGH])\{([^}]*)\}", section):
        rows[name] = KINDS[kind], tuple(re.sub(r"=[^,]*| ", "", listed).split(",")), ""
    return rows


KUBELETS = [name for name in sorted(declared()) if not name.startswith("bulkhead_")]


def test_the_reference_is_read() -> None:
    """Some that are easily misread, so that the comparison below compares something."""
    found = reference()
    assert found["kubelet_running_containers"][:2] == (Kind.GAUGE, ("container_state",))
    assert found["kubelet_runtime_operations_errors_total"][:2] == (Kind.COUNTER, ("operation_type",))
    assert found["kubelet_http_inflight_requests"][1] == ("method", "path", "server_type", "long_running")
    assert found["prober_probe_total"][1] == ("probe_type", "result", "container", "pod", "namespace", "pod_uid")
    assert len(found) > 90


@pytest.mark.parametrize("name", KUBELETS)
def test_a_metric_is_declared_as_the_kubelets(name: str) -> None:
    family = declared()[name]
    kind, labels, notes = reference()[name]
    assert (family.kind, family.labels) == (kind, labels)
    if kind is Kind.HISTOGRAM:
        assert family.buckets == pytest.approx(_buckets(notes, name))


def _buckets(notes: str, name: str) -> tuple[float, ...]:
    if growing := re.search(r"Exp\(([\d.]+),([\d.]+),(\d+)\)", notes):
        return exponential(float(growing[1]), float(growing[2]), int(growing[3]))
    if listed := re.search(r"(?:^|buckets:? )((?:[\d.]+ )+[\d.]+)", notes):
        return _numbers(listed[1])
    if notes.strip() == "podStart":
        text = REFERENCE.read_text().partition("podStart buckets: ")[2].partition("|")[0]
        return _numbers(text)
    return DEFAULT_BUCKETS


def test_names_and_labels_are_valid_and_helps_are_sentences() -> None:
    for family in declared().values():
        assert re.fullmatch(r"[a-z_]+", family.name), family.name
        assert all(re.fullmatch(r"[a-z_]+", label) for label in family.labels), family.name
        assert family.help.endswith(".") and "\n" not in family.help, family.name
        assert not family.name.startswith("bulkhead_") or family.labels[:1] in (("process",), ()), family.name
