"""Which events are too old to be sent, also when the clock is set meanwhile."""

from pathlib import Path

import pytest

from shared.kube import paths
from shared.time.timestamps import rfc3339_micro
from tests.service.status.event_stage import event_stage

pytestmark = pytest.mark.virtual_time


@pytest.mark.long
async def test_events_of_long_ago_are_not_sent_to_a_server_that_has_forgotten_them(tmp_path: Path) -> None:
    async with event_stage(tmp_path) as stage:
        for number in range(3):
            stage.publish_event(uid=str(number))
        await stage.pass_time(2)
        await stage.kill()
        (tmp_path / "events" / "recorded.json").unlink()
        stage.clock.advance(3700)
        for event in stage.events():
            stage.api.delete(paths.event("default", event["metadata"]["name"]))
        await stage.start()
        await stage.pass_time(5)
        assert stage.events() == []


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_step_costs_nothing(tmp_path: Path, hours: int) -> None:
    async with event_stage(tmp_path) as stage:
        stage.publish_event()
        await stage.pass_time(2)
        stage.clock._wall += hours * 3600
        stage.publish_event()
        stage.publish_event("other")
        await stage.pass_time(2)
        assert stage.counts() == {"m": 2, "other": 1}


async def test_an_event_that_comes_after_the_start_is_sent_however_old_a_clock_step_makes_it(tmp_path: Path) -> None:
    async with event_stage(tmp_path) as stage:
        await stage.pass_time(2)
        before = rfc3339_micro(stage.clock.wall())
        stage.clock._wall += 7200
        stage.publish_event("before the step", time=before)
        stage.network.kill("podsync")
        await stage.start_writer("podsync")
        stage.publish_event("of a new process, before the step", time=before)
        await stage.pass_time(5)
        assert stage.counts() == {"before the step": 1, "of a new process, before the step": 1}
