"""The kubelet's unit: which ones are refused, and that systemd reads the drop-in's words as they were."""

from typing import Any

import pytest

from services.cli.systemd.unit import unit_of
from services.cli.takeover.api_server import ready_of
from services.cli.takeover.containers import compare
from services.cli.takeover.node import kubelet_of
from services.cli.takeover.plan import Kubelet
from services.cli.takeover.record import SeenContainer
from services.cli.takeover.unit import drop_in_text, list_refusals, loaded_kubelet
from tests.unit.cli.systemd_bus import properties, started_by

OURS = "/opt/bulkhead/.venv/bin/kubelet"
NOW = 1_800_000_000.0  # wall seconds
GOOD = properties("$KUBELET_CONFIG_ARGS", "--v=2", User="", RootDirectory="")


def test_the_unit_of_kubeadm_is_accepted() -> None:
    unit = unit_of(GOOD)
    assert list_refusals(unit, OURS, NOW) == []
    assert unit.commands == (("/usr/bin/kubelet", "$KUBELET_CONFIG_ARGS", "--v=2"),)
    assert loaded_kubelet(unit, OURS) is Kubelet.OWN
    assert loaded_kubelet(unit, "/usr/bin/kubelet") is Kubelet.BULKHEAD


def test_a_kubelet_that_systemd_had_to_start_again_is_accepted_after_a_minute() -> None:
    again = {**GOOD, "NRestarts": 3, "ExecMainStartTimestamp": (NOW - 61) * 1e6}
    assert list_refusals(unit_of(again), OURS, NOW) == []
    by_hand = {**GOOD, "NRestarts": 0, "ExecMainStartTimestamp": (NOW - 1) * 1e6}
    assert list_refusals(unit_of(by_hand), OURS, NOW) == []


def test_a_unit_of_type_notify_is_accepted() -> None:
    assert list_refusals(unit_of({**GOOD, "Type": "notify"}), OURS, NOW) == []


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"LoadState": "not-found"}, "is not loaded but not-found"),
        ({"LoadState": "masked"}, "is not loaded but masked"),
        ({"NeedDaemonReload": True}, "systemctl daemon-reload"),
        ({"ExecStartEx": []}, "has 0 commands"),
        ({"ExecStartEx": started_by("/usr/bin/kubelet") * 2}, "has 2 commands"),
        ({"ExecStartEx": started_by("/bin/sh", "-c", "exec /usr/bin/kubelet $ARGS")}, "starts /bin/sh"),
        ({"ExecStartEx": started_by("/usr/bin/nice", "/usr/bin/kubelet")}, "starts /usr/bin/nice"),
        ({"ExecStartEx": started_by("/usr/bin/kubelet", prefixes=("privileged",))}, "has the prefix + in ExecStart="),
        ({"User": "kube"}, "runs as user kube"),
        ({"RootDirectory": "/srv/node"}, "its own root directory"),
        ({"KillMode": "process"}, "KillMode=process"),
        ({"ActiveState": "failed", "SubState": "failed", "MainPID": 0}, "is failed (failed)"),
        ({"ActiveState": "activating", "SubState": "auto-restart", "MainPID": 0}, "is activating (auto-restart)"),
        ({"ActiveState": "inactive", "SubState": "dead", "MainPID": 0}, "is inactive (dead)"),
        (
            {"NRestarts": 3, "ExecMainStartTimestamp": (NOW - 20) * 1e6},
            "was started again by systemd within the last 60 s",
        ),
    ],
)
def test_a_unit_that_cannot_be_taken_over_is_refused_in_one_line(changed: dict[str, Any], text: str) -> None:
    found = list_refusals(unit_of({**GOOD, **changed}), OURS, NOW)
    assert len(found) == 1
    assert text in found[0]
    assert "(" in found[0]
    assert "\n" not in found[0]


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("--v=2", "--v=2"),
        ("$KUBELET_CONFIG_ARGS", "$KUBELET_CONFIG_ARGS"),
        ("--root-dir=${ROOT}", "--root-dir=${ROOT}"),
        ("", '""'),
        (";", '";"'),
        ("--node-labels=a=b c", '"--node-labels=a=b c"'),
        ('a "x" \\ %h', '"a \\"x\\" \\\\ %%h"'),
        ("100%", '"100%%"'),
        ("two\nlines", '"two\\nlines"'),
    ],
)
def test_the_drop_in_quotes_a_word_for_systemd(word: str, written: str) -> None:
    lines = drop_in_text(OURS, [word]).splitlines()
    assert [line for line in lines if line.startswith("ExecStart=")] == ["ExecStart=", f"ExecStart={OURS} {written}"]


@pytest.mark.parametrize(
    ("line", "kubelet"),
    [
        (f"/opt/bulkhead/.venv/bin/python {OURS} --v=2", Kubelet.BULKHEAD),
        (f"/usr/bin/python3 -P {OURS}", Kubelet.BULKHEAD),
        ("/usr/bin/kubelet --v=2", Kubelet.OWN),
        ("/bin/sh /usr/bin/kubelet", Kubelet.OWN),
        ("/opt/other/bin/python3.13 /opt/other/bin/kubelet --v=2", Kubelet.NONE),
        ("", Kubelet.OWN),
    ],
)
def test_a_bulkhead_of_another_directory_is_neither_of_the_two_kubelets(line: str, kubelet: Kubelet) -> None:
    assert kubelet_of(line.encode().split(b" "), OURS) is kubelet


def test_a_node_without_the_condition_is_not_ready() -> None:
    for node in ({}, {"status": "x"}, {"status": {"conditions": {"type": "Ready"}}}, {"status": {"conditions": ["x"]}}):
        assert not ready_of(node).ready
    written = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-23T03:00:00Z"}
    found = ready_of({"status": {"conditions": [written]}})
    assert found.ready
    assert found.written == 1795402800.0


def test_containers_are_compared_by_their_ids() -> None:
    def seen(number: str, pod: str) -> SeenContainer:
        return SeenContainer(id=number, name="c", pod=pod)

    before = [seen("1", "a/kept"), seen("2", "a/static"), seen("3", "a/ended")]
    change = compare(before, [seen("1", "a/kept"), seen("4", "a/static"), seen("5", "a/new")])
    assert (change.kept, change.restarted, change.ended) == (1, ("a/static",), ("a/ended",))
    change = compare(before, iter([seen("1", "a/kept")]), frozenset({"a/static"}))
    assert (change.kept, change.restarted, change.ended) == (1, ("a/static",), ("a/ended",))
