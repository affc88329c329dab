"""The document of the node page, what has changed in it, and the events that pages get."""

import json
from typing import Any

import pytest

from bus.messages.beat import Beat
from bus.messages.followed import Followed
from bus.messages.services import SERVICES
from services.report.document import MAX_TROUBLES, document
from services.report.node import Report, ReportInputs, report
from services.report.pod_rows import PodFacts, PodRow, pod_row
from services.report.processes import ProcessFacts
from services.server.core.pages.page_feed import Document, PageFeed, changes
from shared.model.frozen_copy import replace

NO_HISTORY: dict[str, Any] = {"at": [], "values": {}}
OBSERVED = {
    "runtime_name": "containerd", "runtime_version": "1.7", "runtime_reachable": True, "runtime_ready": True,
    "network_ready": True,
}  # fmt: skip


def row(uid: str = "u1", name: str = "web") -> PodRow:
    return replace(pod_row(PodFacts(uid=uid)), name=name)


def found(troubles: tuple[str, ...] = (), **more: Any) -> Report:
    beat = Beat(service="pleg", incarnation="p", protocol="1.0", pid=1, sent_at=1.0, troubles=troubles)
    inputs: dict[str, Any] = {
        "now": 2.0, "node": "n", "joins_cluster": False, "run_dir": "/run", "observed": OBSERVED, "node_object": None,
        "processes": dict.fromkeys(SERVICES, ProcessFacts(holder=None)), "beats": {"pleg": beat},
        "followed": {"server": Followed(incarnation="s")}, "pods": (),
    }  # fmt: skip
    return report(ReportInputs(**(inputs | more)))


def made(
    pods: dict[str, PodRow] | None = None,
    history: dict[str, Any] = NO_HISTORY,
    sections: dict[str, Any] | None = None,
    **more: Any,
) -> Document:
    machine = {"conditions": [], "machine": {}, "usage": {}} | (sections or {})
    return document(found(**more), version="1", cpu={"pleg": 1.5}, pods=pods or {}, history=history, sections=machine)


def data_of(event: bytes) -> tuple[str, Any]:
    name, data, *rest = event.decode().split("\n")
    assert rest == ["", ""]
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_the_document_begins_with_the_verdict_and_its_reasons() -> None:
    data = made(troubles=("the disk is full",))
    assert not data["node"]["ready"] and "pleg does not run" in " ".join(data["node"]["problems"])
    assert data["node"]["facts"] == ["containerd 1.7: ready", "alone, without an API server"]
    assert data["troubles"] == ["pleg: the disk is full"]
    assert {one["service"]: one["cpu"] for one in data["processes"]} == dict.fromkeys(SERVICES) | {"pleg": 1.5}


def test_a_node_of_a_cluster_shows_its_api_server_and_lease() -> None:
    lease = Beat(service="status", incarnation="s", protocol="1.0", pid=1, sent_at=1.0, progress={"lease": 1.0})
    facts = made(joins_cluster=True, beats={"status": lease}, observed=None)["node"]["facts"]
    assert facts == ["container runtime: not known", "API server: unknown", "lease: renewed"]
    assert made(joins_cluster=True, beats={"status": lease}, now=60.0)["node"]["facts"][-1] == "lease: not renewed"


@pytest.mark.long
def test_what_services_write_is_bounded_and_in_one_line() -> None:
    lines = made(troubles=tuple(f"line {number}\n{'x' * 5000}\x1b[2J" for number in range(300)))["troubles"]
    assert len(lines) == MAX_TROUBLES and all(len(line) <= 300 and line.isprintable() for line in lines)


def test_a_change_has_only_what_differs() -> None:
    before = made({"u1": row(), "u2": row("u2")})
    assert changes(before, made({"u1": row(), "u2": row("u2")})) == {}
    after = made({"u1": row(name="other"), "u3": row("u3")}, troubles=("x",))
    assert changes(before, after) == {
        "troubles": ["pleg: x"],
        "pods": {"u1": row(name="other"), "u3": row("u3"), "u2": None},
    }
    sampled = made({"u1": row(), "u2": row("u2")}, history={"at": [10], "values": {"a": [1]}})
    assert changes(before, sampled) == {"history": {"at": [10], "values": {"a": [1]}}}
    for section, value in (("conditions", [{"type": "Ready"}]), ("machine", {"network": []}), ("usage", {"u1": [0.1]})):
        assert changes(before, made({"u1": row(), "u2": row("u2")}, sections={section: value})) == {section: value}


def test_a_page_in_step_gets_the_change_and_any_other_the_whole_document() -> None:
    feed = PageFeed()
    assert feed.put(made({"u1": row()})) and feed.number == 1
    name, complete = data_of(feed.since(0))
    assert name == "state" and set(complete["pods"]) == {"u1"}
    assert not feed.put(made({"u1": row()})) and feed.number == 1
    assert feed.put(made({"u1": row(), "u2": row("u2")})) and feed.number == 2
    assert data_of(feed.since(1)) == ("change", {"pods": {"u2": complete["pods"]["u1"] | {"uid": "u2"}}})
    assert feed.put(made({}))
    assert [data_of(feed.since(number))[0] for number in (0, 1, 2)] == ["state", "state", "change"]
    assert json.loads(feed.complete())["pods"] == {}


def test_one_encoding_serves_all_pages() -> None:
    feed = PageFeed()
    feed.put(made({"u1": row()}))
    feed.put(made({"u2": row("u2")}))
    assert feed.since(1) is feed.since(1) and feed.complete() is feed.complete()
