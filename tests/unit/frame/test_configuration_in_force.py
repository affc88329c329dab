"""A service ends for a change that it reads, and goes on for any other one."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from bus.manifest import new_manifest, write_manifest
from services.frame.configuration_in_force import ConfigurationInForce
from shared.config.effective import EffectiveConfig
from shared.config.excerpt import CONFIG_NAME
from shared.config.loader import encode_effective
from shared.files.atomic import write_atomically
from shared.model.frozen_copy import replace
from tests.support.waits.deadline import WAIT_SECONDS

GENERATION = "boot/17/1"


@pytest.fixture
def config(tmp_path: Path) -> EffectiveConfig:
    return EffectiveConfig(node_name="n1", root_dir="/r", run_dir=str(tmp_path), log_dir="/l", cert_dir="/c")


def write(config: EffectiveConfig, generation: str = GENERATION) -> None:
    write_atomically(Path(config.run_dir) / CONFIG_NAME, encode_effective(config, generation))


class Following:
    """A service `podsync` that follows the file; `taken` are the configurations for which it goes on."""

    def __init__(self, config: EffectiveConfig) -> None:
        self.in_force = ConfigurationInForce("podsync", Path(config.run_dir), GENERATION, config)
        self.taken: asyncio.Queue[EffectiveConfig] = asyncio.Queue()
        self.ended = asyncio.ensure_future(self.in_force.follow(self.taken.put_nowait))

    async def next(self) -> EffectiveConfig:
        """The next configuration for which it goes on."""
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.taken.get()


async def test_it_goes_on_for_what_others_read_and_ends_for_what_it_reads(config: EffectiveConfig) -> None:
    write(config)
    podsync = Following(config)
    quieter = replace(config, verbosity=0, port=10350, document={"port": 10350})
    write(quieter)
    assert await podsync.next() == podsync.in_force.newest == quieter
    write(replace(quieter, max_pods=7))
    assert await asyncio.wait_for(podsync.ended, WAIT_SECONDS)
    assert podsync.in_force.newest == quieter


async def test_a_change_before_the_file_is_watched_counts(config: EffectiveConfig) -> None:
    write(replace(config, max_pods=7))
    assert await asyncio.wait_for(Following(config).ended, WAIT_SECONDS)


async def test_changes_that_together_are_none_end_it_not(config: EffectiveConfig) -> None:
    write(config)
    podsync = Following(config)
    for port in (10350, config.port, 10351):
        write(replace(config, port=port))
        assert (await podsync.next()).port == port
    podsync.ended.cancel()


@pytest.mark.parametrize(
    "other",
    [
        lambda config: write(replace(config, max_pods=7), "boot/18/1"),  # of a newer supervisord
        lambda config: (Path(config.run_dir) / CONFIG_NAME).write_text("{}"),
        lambda config: (Path(config.run_dir) / CONFIG_NAME).unlink(),
        lambda config: write(replace(config, max_pods=7), ""),
    ],
)
async def test_a_file_that_is_not_in_force_changes_nothing(
    config: EffectiveConfig, other: Callable[[EffectiveConfig], object]
) -> None:
    write(config)
    podsync = Following(config)
    other(config)
    write(replace(config, port=10350))
    assert (await podsync.next()).port == 10350
    assert not podsync.ended.done()
    podsync.ended.cancel()


async def test_without_a_watch_the_service_goes_on(config: EffectiveConfig) -> None:
    missing = replace(config, run_dir=f"{config.run_dir}/none")
    assert not await asyncio.wait_for(Following(missing).ended, WAIT_SECONDS)


async def test_a_wait_after_failed_starts_ends_with_a_change_that_the_service_reads(config: EffectiveConfig) -> None:
    write(config)
    write_manifest(new_manifest(Path(config.run_dir)))
    in_force = ConfigurationInForce("podsync", Path(config.run_dir), GENERATION, config)
    waiting = asyncio.create_task(in_force.back_off(10 * WAIT_SECONDS))
    await asyncio.sleep(0)
    assert not waiting.done()
    write(replace(config, max_pods=7))
    assert (await asyncio.wait_for(waiting, WAIT_SECONDS)).max_pods == 7


async def test_after_its_wait_a_service_has_the_newest_configuration(config: EffectiveConfig) -> None:
    write(config)
    write_manifest(new_manifest(Path(config.run_dir)))
    in_force = ConfigurationInForce("podsync", Path(config.run_dir), GENERATION, config)
    assert await in_force.back_off(0.01) == config
    quieter = replace(config, verbosity=0)
    write(quieter)
    assert await in_force.back_off(0.01) == quieter
    (Path(config.run_dir) / CONFIG_NAME).unlink()
    assert await in_force.back_off(0.01) == quieter
