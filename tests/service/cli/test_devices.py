"""`bulkhead devices` shows what running processes publish."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.cli.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, 3)
    yield stage
    stage.stop()


def test_devices_are_those_that_volume_has_with_those_who_have_them_by_podsync(stage: Stage) -> None:
    found = json.loads(stage.command("devices", "-o", "json").stdout)
    web = {"namespace": "shop", "pod": "web-2", "uid": "u2", "container": "web"}
    assert [(row["device"], row["health"], row["containers"]) for row in found["devices"]] == [
        ("gpu-0", "Healthy", []),
        ("gpu-1", "Unhealthy", [web]),
    ]
    lines = stage.command("devices").stdout.splitlines()
    assert lines[1].split()[:5] == ["example.com/gpu", "2", "1", "1", "connected"]
    assert lines[5].split()[-2:] == ["0,1", "shop/web-2/web"]
    assert lines[-1].split() == ["shop/net-claim", "nic.example.com", "here", "nic-0", "Unhealthy", "shop/web-2"]
    assert [(row["uid"], row["device"], row["message"]) for row in found["claims"]] == [("u2", "nic-0", "no link")]


def test_a_stopped_podsync_is_named_at_once(stage: Stage) -> None:
    stage.processes["podsync"].send_signal(signal.SIGSTOP)
    answer = stage.command("devices")
    assert answer.returncode == 1
    assert answer.stderr.startswith("podsync is stopped by a signal (kill -CONT "), answer.stderr
