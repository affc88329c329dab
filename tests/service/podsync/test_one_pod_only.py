"""A mistake in what podsync makes of one pod costs that pod only, is logged once, and is a trouble until it is over."""

import logging
from pathlib import Path
from typing import Any

import pytest

from services.podsync.core.machine import PodSync
from services.podsync.core.pod.events import Event, PodDesired
from services.podsync.core.pod.instructions import Instruction
from tests.service.podsync.stage import on_stage
from tests.service.podsync.test_podsync_service import a_pod


def named(uid: str, **spec: Any) -> dict[str, Any]:
    pod = a_pod(uid, **spec)
    return {**pod, "metadata": {**pod["metadata"], "name": uid}}


async def test_an_event_of_one_pod_that_cannot_be_handled_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handle = PodSync.handle

    def mistaken(core: PodSync, event: Event, now: float) -> list[Instruction]:
        if isinstance(event, PodDesired) and event.uid == "bad":
            raise KeyError("of a shape that is not known")
        return handle(core, event, now)

    caplog.set_level(logging.ERROR)
    async with on_stage(tmp_path) as stage:
        beats: dict[str, Any] = {}
        with monkeypatch.context() as broken:
            broken.setattr(PodSync, "handle", mistaken)
            for seconds in (1, 2, 3):
                stage.want(named("bad", activeDeadlineSeconds=seconds))
                await stage.network.settle()
            stage.want(named("good"))
            await stage.until(lambda: stage.running("good"))
            beats["failing"] = stage.podsync.bus._beat_content._troubles.get("pods")  # type: ignore[attr-defined]
        stage.want(named("bad"))
        await stage.until(lambda: stage.running("bad"))
        assert "pods" not in stage.podsync.bus._beat_content._troubles  # type: ignore[attr-defined]
    assert beats["failing"] == "event PodDesired of pod bad failed: KeyError; it is tried again, the log has more"
    assert len([record for record in caplog.records if record.exc_info]) == 1
