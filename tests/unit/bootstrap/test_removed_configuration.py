"""bootstrap evaluates again while services of its own supervisord work: all are restarted; at a start none is."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus.lock import ServiceLock
from services.bootstrap.adapters.serving_pair import PairReport
from services.bootstrap.controllers import startup
from services.bootstrap.controllers.startup import BootstrapStartup, Evaluation
from services.frame.generation import SUPERVISORD, generation_of
from shared.config.effective import EffectiveConfig
from shared.config.resolve import Resolved


class WritesNothing(BootstrapStartup):
    """A startup that writes nothing; a service takes its lock as soon as the configuration is there."""

    def __init__(self, status: ServiceLock) -> None:
        super().__init__()
        self.status, self.restarts = status, 0

    def _settle_credentials(self, config: Any) -> None:
        pass

    def _write(self, config: Any) -> None:
        assert self.status.try_acquire()

    def _restart_all(self) -> None:
        self.restarts += 1


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WritesNothing]:
    generation = generation_of(os.getppid())
    monkeypatch.setenv("BULKHEAD_HOME", str(tmp_path))
    monkeypatch.setenv("SUPERVISOR_ENABLED", "1")
    monkeypatch.setenv(SUPERVISORD, generation)
    config = EffectiveConfig(node_name="n", root_dir="", run_dir="", log_dir="", cert_dir="")
    evaluation = Evaluation(Resolved(config), PairReport())
    monkeypatch.setattr(startup, "evaluate_all", lambda *_, **__: evaluation)
    lock = ServiceLock(tmp_path / "run", "status", generation)
    yield WritesNothing(lock)
    lock.release()


def test_a_service_that_begins_with_the_new_configuration_is_not_restarted(begun: WritesNothing) -> None:
    begun.configure()
    assert begun.restarts == 0


def test_a_service_that_worked_before_is(begun: WritesNothing) -> None:
    assert begun.status.try_acquire()
    begun.configure()
    assert begun.restarts == 1
