"""When the agent is healthy for systemd: bootstrap's decision and status's, in one place because they must agree."""

import pytest

from bus.messages.streams import SERVICES
from services.bootstrap.core.agent_health import AgentHealth as SeenByBootstrap
from services.bootstrap.core.agent_health import poll_times
from services.status.core.agent_health import AgentHealth as SeenByStatus

SILENT = "supervisord is silent"


@pytest.mark.parametrize(
    ("sync_frequency", "seconds", "well"), [(60, 300, True), (60, 301, False), (200, 400, True), (200, 401, False)]
)
def test_a_sync_loop_that_does_not_turn_is_unhealthy_for_both(
    sync_frequency: float, seconds: float, well: bool
) -> None:
    bootstrap = SeenByBootstrap(SERVICES, sync_frequency)
    status = SeenByStatus(SILENT, sync_frequency, 1000.0)
    assert bootstrap.is_well(1000.0) and status.is_well(1000.0)
    bootstrap.note_beat("podsync", {"sync": 1000.0})
    status.note_beat("podsync", {"sync": 1000.0}, (), 1000.0)
    status.note_beat("bootstrap", {}, (), 1000.0 + seconds)
    assert bootstrap.is_well(1000.0 + seconds) is well
    assert status.is_well(1000.0 + seconds) is well


def test_other_loops_and_other_services_are_not_the_sync_loop() -> None:
    bootstrap = SeenByBootstrap(SERVICES, 60)
    bootstrap.note_beat("podsync", {"events": 0.0})
    bootstrap.note_beat("volume", {"sync": 0.0})
    assert bootstrap.is_well(10_000.0)


def test_a_silent_supervisord_is_not_well_until_it_answers_again() -> None:
    bootstrap, status = SeenByBootstrap(SERVICES, 60), SeenByStatus(SILENT, 60, 0.0)
    bootstrap.supervisord_answers = False
    status.note_beat("bootstrap", {}, ("something else", SILENT), 1.0)
    assert not bootstrap.is_well(1.0) and not status.is_well(1.0)
    status.note_beat("server", {}, (), 2.0)
    assert not status.is_well(2.0)
    bootstrap.supervisord_answers = True
    status.note_beat("bootstrap", {}, ("something else",), 3.0)
    assert bootstrap.is_well(3.0) and status.is_well(3.0)


@pytest.mark.parametrize("has_beat", [False, True])
def test_bootstrap_may_be_away_for_thirty_seconds(has_beat: bool) -> None:
    status = SeenByStatus(SILENT, 60, 100.0)
    if has_beat:
        status.note_beat("bootstrap", {}, (), 100.0)
    assert status.is_well(130.0)
    assert not status.is_well(130.1)
    status.note_beat("bootstrap", {}, (), 131.0)
    assert status.is_well(131.0)


def test_the_first_beat_of_the_last_service_is_noted_once() -> None:
    health = SeenByBootstrap(["pleg", "status"], 60)
    assert [health.note_beat(name, {}) for name in ("status", "status", "pleg", "pleg")] == [False, False, True, False]


@pytest.mark.parametrize(("interval", "expected"), [(2.0, (1.0, 1.0)), (15.0, (7.5, 7.5)), (60.0, (30.0, 10.0))])
def test_a_silence_is_known_before_the_next_ping(interval: float, expected: tuple[float, float]) -> None:
    assert poll_times(interval) == expected
    assert sum(poll_times(interval)) <= interval
