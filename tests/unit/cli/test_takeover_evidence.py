"""The reason of a takeover that fails contains what the agent logged last."""

import os
import time
from datetime import datetime
from pathlib import Path

import pytest

from services.cli.systemd import control
from services.cli.systemd.unit import unit_of
from services.cli.takeover.evidence import evidence, last_line_of_agent, last_line_of_journal
from shared.errors import OperatorError

UNIT = unit_of({"ActiveState": "activating", "SubState": "auto-restart", "NRestarts": 2})


def klog(severity: str, wall: float, text: str) -> str:
    return f"{severity}{datetime.fromtimestamp(wall).astimezone():%m%d %H:%M:%S.%f}      12 bootstrap/x.py:1] {text}\n"


def test_the_newest_error_since_the_restart_is_shown(tmp_path: Path) -> None:
    now = time.time()
    (tmp_path / "pleg.log").write_text(klog("E", now - 9, "of an earlier start") + klog("I", now + 3, "relist"))
    (tmp_path / "status.log").write_text(
        klog("E", now + 1, "the first") + klog("F", now + 2, "the last\x1b") + "  more\n"
    )
    line = last_line_of_agent(tmp_path, now).text
    assert line.startswith(f"the last line of {tmp_path}/status.log is: F")
    assert line.endswith("x.py:1] the last\\x1b")


def test_without_an_error_it_is_the_newest_line(tmp_path: Path) -> None:
    now = time.time()
    (tmp_path / "pleg.log").write_text(
        "x" * 70_000 + "\n" + klog("I", now + 3, "relist") + klog("I", now + 4, "y" * 999)
    )
    (tmp_path / "server.log").write_text(f'{{"ts":{(now + 1) * 1000:.0f},"v":0,"msg":"starts"}}\n')
    line = last_line_of_agent(tmp_path, now).text
    assert line.startswith(f"the last line of {tmp_path}/pleg.log is: I")
    assert len(line) < 500


def test_before_a_service_logs_it_is_the_line_of_supervisord(tmp_path: Path) -> None:
    now = time.time()
    (tmp_path / "pleg.log").write_text(klog("E", now - 9, "of an earlier start"))
    assert last_line_of_agent(tmp_path, now).text == ""
    (tmp_path / "supervisord.log").write_text(
        "2026-11-23 07:00:00,000 INFO spawned\n2026-11-23 07:00:01,000 INFO exited\n"
    )
    line = last_line_of_agent(tmp_path, now - 1).text
    assert line == f"the last line of {tmp_path}/supervisord.log is: 2026-11-23 07:00:01,000 INFO exited"
    os.utime(tmp_path / "supervisord.log", (now - 9, now - 9))
    assert last_line_of_agent(tmp_path, now).text == ""


def test_the_journal_is_read_where_the_agent_has_not_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["I1123 07:00:00 starts", "E1123 07:00:01 kubelet.go:1] no", "Started kubelet.service"]
    monkeypatch.setattr(control, "read_journal", lambda unit, since: lines)
    state, line = evidence(UNIT, "kubelet.service", tmp_path, 1.0)
    assert state == "kubelet.service is activating (auto-restart), systemd has started it again 2 times"
    assert line == f"the last line of journalctl -u kubelet.service is: {lines[1]}"
    monkeypatch.setattr(control, "read_journal", lambda unit, since: lines[2:])
    assert last_line_of_journal("kubelet.service", 1.0).text.endswith("Started kubelet.service")


def test_an_error_of_a_process_that_cannot_write_its_log_is_found_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    (tmp_path / "podsync.log").write_text(klog("I", now + 1, "the runtime has 2 images"))
    os.utime(tmp_path / "podsync.log", (now - 0.01, now - 0.01))  # by the clock of files, which may be behind
    lines = [
        "I1123 07:00:00 starts",
        "bulkhead bootstrap: /var/log/bulkhead: cannot be written: Is a directory",
        "stops",
    ]
    monkeypatch.setattr(control, "read_journal", lambda unit, since: lines)
    assert evidence(UNIT, "kubelet.service", tmp_path, now)[1].endswith(lines[1])
    monkeypatch.setattr(control, "read_journal", lambda unit, since: ["stops"])
    assert evidence(UNIT, "kubelet.service", tmp_path, now)[1].endswith("the runtime has 2 images")
    (tmp_path / "podsync.log").write_text(klog("E", now + 1, "no"))
    monkeypatch.setattr(control, "read_journal", lambda unit, since: lines)
    assert evidence(UNIT, "kubelet.service", tmp_path, now)[1].endswith("] no")


def test_a_journal_that_cannot_be_read_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def journal(unit: str, since: float) -> list[str]:
        raise OperatorError("is not installed", where="journalctl")

    monkeypatch.setattr(control, "read_journal", journal)
    assert len(evidence(UNIT, "kubelet.service", None, 1.0)) == 1


def test_a_credential_in_the_line_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "E1123 07:00:01 kubelet.go:1] Get https://registry: Authorization: Bearer abcdefgh12345678"
    monkeypatch.setattr(control, "read_journal", lambda unit, since: [line])
    assert last_line_of_journal("kubelet.service", 1.0).text.endswith("Authorization: Bearer <masked>")
