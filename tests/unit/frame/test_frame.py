"""The pieces of the frame: watchdog, crash points, and which configuration is in force."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bus.manifest import new_manifest, prepare_run_dir, write_manifest
from services.frame.configuration_wait import ConfigurationWait
from shared.config.effective import EffectiveConfig
from shared.config.loader import encode_effective
from shared.files.atomic import write_atomically
from shared.model.frozen_copy import replace
from shared.process import crash
from shared.process.deadlines import Deadlines
from shared.process.watchdog import StallDetector, Watchdog

CONFIG = EffectiveConfig(node_name="n", root_dir="/r", run_dir="/x", log_dir="/l", cert_dir="/c")


def test_a_loop_that_turns_is_left_alone() -> None:
    standstill = StallDetector(limit=3)
    for _ in range(10):
        assert not standstill.tick()
        standstill.turned()


def test_a_loop_that_stands_still_is_noticed_after_the_limit() -> None:
    standstill = StallDetector(limit=3)
    assert [standstill.tick() for _ in range(4)] == [False, False, False, True]


async def test_the_watchdog_acts_from_its_own_thread() -> None:
    noticed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def notice(reason: str) -> None:
        reasons.append(reason)
        loop.call_soon_threadsafe(noticed.set)

    reasons: list[str] = []
    Watchdog(notice, Deadlines(), limit=1, tick=0.001).start()
    await noticed.wait()
    assert reasons == ["the event loop did not turn for too long"]


async def test_the_watchdog_notices_work_that_is_overdue_while_the_loop_turns() -> None:
    noticed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    loop, deadlines = asyncio.get_running_loop(), Deadlines(tick_seconds=0.001)
    deadlines.begin("the lane of pod u", 0.002)

    def notice(reason: str) -> None:
        loop.call_soon_threadsafe(noticed.set_result, reason)

    Watchdog(notice, deadlines, limit=1_000_000, tick=0.001).start()
    assert (await noticed).startswith("the lane of pod u has made no progress")


def publish(run_dir: Path, config: EffectiveConfig, generation: str) -> None:
    write_atomically(run_dir / "config.json", encode_effective(config, generation))
    write_manifest(new_manifest(run_dir))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    prepare_run_dir(tmp_path / "run")
    return tmp_path / "run"


async def test_a_service_waits_until_the_configuration_is_written(run_dir: Path) -> None:
    waiting = asyncio.create_task(ConfigurationWait(run_dir, "g1").wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    publish(run_dir, CONFIG, "g1")
    assert await waiting == CONFIG


def test_a_configuration_of_our_supervisord_is_taken_at_once(run_dir: Path) -> None:
    publish(run_dir, CONFIG, "g1")
    assert ConfigurationWait(run_dir, "g1").look() == CONFIG


def test_a_configuration_left_by_an_earlier_supervisord_is_not_taken(run_dir: Path) -> None:
    publish(run_dir, CONFIG, "g1")
    waiting = ConfigurationWait(run_dir, "g2")
    assert waiting.look() is None
    publish(run_dir, replace(CONFIG, node_name="new"), "g2")
    found = waiting.look()
    assert found is not None and found.node_name == "new"


def test_a_configuration_that_another_supervisord_gets_while_we_wait_is_not_ours(run_dir: Path) -> None:
    publish(run_dir, CONFIG, "g1")
    waiting = ConfigurationWait(run_dir, "g2")
    publish(run_dir, CONFIG, "g3")
    assert waiting.look() is None


def test_without_supervisord_any_configuration_is_taken(run_dir: Path) -> None:
    publish(run_dir, CONFIG, "g1")
    assert ConfigurationWait(run_dir, "").look() == CONFIG


def test_without_a_manifest_there_is_nothing_to_start_with(run_dir: Path) -> None:
    write_atomically(run_dir / "config.json", encode_effective(CONFIG, "g1"))
    assert ConfigurationWait(run_dir, "g1").look() is None


@pytest.mark.parametrize(
    ("wanted", "name", "dies"),
    [
        ("podsync.calling", "podsync.calling", True),
        ("podsync.calling", "podsync.calling.StartContainer", True),
        ("podsync.call", "podsync.calling", False),
        ("podsync.calling.StartContainer", "podsync.calling", False),
        ("", "podsync.calling", False),
    ],
)
def test_a_crash_point_covers_what_is_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, name: str, dies: bool
) -> None:
    monkeypatch.setenv("BULKHEAD_RUN_DIR", str(tmp_path))
    assert bool(wanted and crash._claim(wanted, name)) is dies
    (tmp_path / "at").write_text(wanted + "\n")
    assert crash._claim(f"@{tmp_path}/at", name) is dies
    assert (tmp_path / "at").exists() is not dies


def test_a_crash_point_kills_once_per_run_directory(tmp_path: Path) -> None:
    program = "from shared.process.crash import crash_point; crash_point('a.b'); print('alive')"
    environment = {"CRASH_AT": "a", "BULKHEAD_RUN_DIR": str(tmp_path)}
    command = [sys.executable, "-P", "-c", program]
    first = subprocess.run(command, env=environment, capture_output=True, check=False)
    second = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert first.returncode == -signal.SIGKILL
    assert (second.returncode, second.stdout) == (0, b"alive\n")
