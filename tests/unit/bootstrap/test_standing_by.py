"""A bootstrap behind an orphaned one: what it confirms, and what it keeps asking supervisord for."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from bus.manifest import prepare_run_dir
from services.bootstrap import front_door, standing_by
from services.bootstrap.front_door import BootstrapDoor
from shared.config.effective import EffectiveConfig, EmbeddedContainerd
from shared.config.loader import encode_effective, load_generation
from shared.files import write_atomically

CONFIG = EffectiveConfig(node_name="n", root_dir="/r", run_dir="/x", log_dir="/l", cert_dir="/c")
DEADLINE = 20.0  # seconds


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BULKHEAD_HOME", str(tmp_path))
    monkeypatch.setenv("SUPERVISOR_ENABLED", "1")
    monkeypatch.setenv("BULKHEAD_SUPERVISORD", "boot/7/new")
    prepare_run_dir(tmp_path / "run")
    return tmp_path / "run"


class StandingBy:
    def __init__(self, run_dir: Path) -> None:
        self._run_dir, self._task = run_dir, asyncio.create_task(BootstrapDoor().stand_by())

    def orphan_writes(self, config: EffectiveConfig = CONFIG) -> None:
        write_atomically(self._run_dir / "config.json", encode_effective(config, "boot/6/old"))

    async def confirmed(self, config: EffectiveConfig = CONFIG) -> None:
        await self.until(lambda: load_generation(str(self._run_dir)) == (config, "boot/7/new"))

    async def until(self, look: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not look():
                assert not self._task.done()
                await asyncio.sleep(0.005)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


@pytest_asyncio.fixture
async def behind(run_dir: Path) -> AsyncIterator[StandingBy]:
    write_atomically(run_dir / "config.json", encode_effective(CONFIG, "boot/6/old"))
    behind = StandingBy(run_dir)
    yield behind
    await behind.end()


async def test_what_the_orphan_has_written_and_what_it_writes_later_holds_for_our_supervisord(
    behind: StandingBy,
) -> None:
    await behind.confirmed()
    for node_name in ("later", "and again"):
        config = replace(CONFIG, node_name=node_name)
        behind.orphan_writes(config)
        await behind.confirmed(config)


async def test_an_orphan_that_has_written_nothing_yet_is_waited_for(run_dir: Path) -> None:
    behind = StandingBy(run_dir)
    await asyncio.sleep(0)
    assert not (run_dir / "config.json").exists()
    behind.orphan_writes()
    await behind.confirmed()
    await behind.end()


async def test_a_full_disk_is_tried_again(behind: StandingBy, monkeypatch: pytest.MonkeyPatch) -> None:
    await behind.confirmed()
    full, write = [OSError(28, "No space left on device")] * 2, write_atomically

    def write_if_possible(path: Path, content: bytes) -> None:
        if full:
            raise full.pop()
        write(path, content)

    monkeypatch.setattr(standing_by, "_RETRY", 0.01)
    monkeypatch.setattr(front_door, "write_atomically", write_if_possible)
    behind.orphan_writes()
    await behind.confirmed()


async def test_where_nothing_can_be_watched_it_looks_now_and_then(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(standing_by, "Inotify", refuse)
    monkeypatch.setattr(standing_by, "_RETRY", 0.01)
    behind = StandingBy(run_dir)
    for node_name in ("first", "later"):
        config = replace(CONFIG, node_name=node_name)
        behind.orphan_writes(config)
        await behind.confirmed(config)
    await behind.end()


async def test_a_file_that_cannot_be_opened_for_a_moment_is_looked_at_again(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError(24, "Too many open files")]

    def load(directory: str) -> tuple[EffectiveConfig, str]:
        if failures:
            raise failures.pop()
        return load_generation(directory)

    monkeypatch.setattr(standing_by, "_RETRY", 0.01)
    monkeypatch.setattr(standing_by, "load_generation", load)
    write_atomically(run_dir / "config.json", encode_effective(CONFIG, "boot/6/old"))
    behind = StandingBy(run_dir)
    await behind.confirmed()
    await behind.end()


async def test_supervisord_is_asked_for_containerd_until_it_does_it(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [False, False, True]
    monkeypatch.setattr(standing_by, "_RETRY", 0.01)
    monkeypatch.setattr(standing_by, "start_containerd", lambda: answers.pop(0))
    behind = StandingBy(run_dir)
    paths = dict.fromkeys(EmbeddedContainerd.__dataclass_fields__, "")
    embedded = replace(CONFIG, embedded_containerd=EmbeddedContainerd(**paths))
    behind.orphan_writes(embedded)
    await behind.until(lambda: not answers)
    behind.orphan_writes(embedded)  # another look must not ask again
    await behind.confirmed(embedded)
    await behind.end()
