"""What a lost, late or refused checkpoint costs: at the most a retry, never a volume of a running pod."""

import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from bus.interface import Change, Deleted, Put
from bus.messages.podsync import PodStatus
from bus.messages.streams import PODS_STATUS
from shared.files.checkpoint import Checkpoint, RecordLocation
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.stage import Stage, on_stage
from tests.service.podsync.test_podsync_service import a_pod


def record_file(directory: Path, uid: str) -> Path:
    return directory / "root/bulkhead/podsync/pods" / f"{uid}.json"


def poke(stage: Stage, pod: dict[str, Any], seconds: float) -> None:
    """Let time pass, and something happen that makes podsync look at the pod again."""
    stage.network.clock.advance(seconds)
    labels = {"poked": str(stage.network.clock.monotonic())}
    stage.want({**pod, "metadata": {**pod["metadata"], "labels": labels}})


@pytest.mark.long
async def test_a_lost_record_never_makes_a_running_pod_look_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[Change[Any]] = []
    async with on_stage(tmp_path, on_change=received.append) as stage:
        uid = stage.want(a_pod())
        await stage.until(lambda: stage.running(uid) and record_file(tmp_path, uid).exists())
        await stage.kill()
        record_file(tmp_path, uid).unlink()
        slow, save = threading.Event(), Checkpoint.save

        def save_slowly(self: Checkpoint, key: str, data: dict[str, Any]) -> RecordLocation:
            slow.wait(0.3)  # an fsync that takes its time: everything else is through before it
            return save(self, key, data)

        monkeypatch.setattr(Checkpoint, "save", save_slowly)
        await stage.start()
        await stage.until(lambda: stage.admitted.complete and stage.volumes.complete)
        assert uid in stage.admitted.state and uid in stage.volumes.state
        assert not [change for change in received if isinstance(change, Deleted)]
        assert stage.runtime.methods().count("CreateContainer") == 1


@pytest.mark.long
async def test_statuses_are_not_called_complete_while_one_is_held_back(tmp_path: Path) -> None:
    runtime, received = FakeRuntime(images=["busybox:1"]), list[Change[PodStatus]]()
    async with on_stage(tmp_path, runtime) as stage:
        hang = runtime.hang("StartContainer", times=0)
        follower = stage.network.bus("status")
        follower.follow(PODS_STATUS, received.append)
        await follower.start()
        uid = stage.want(a_pod())
        await stage.until(hang.reached.is_set)
        await stage.until(lambda: stage.status(uid))
        await stage.restart()
        await stage.until(lambda: any(isinstance(c, Put) and c.value.version[0] == 2 for c in received))
        gone = [change for change in received if isinstance(change, Deleted)]
        runtime.clear_faults()
        assert not gone, "a pod that is about to start has not lost its status"


async def test_what_could_not_be_saved_starts_as_soon_as_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(tmp_path) as stage:
        save, refusing = Checkpoint.save, True

        def refuse(self: Checkpoint, key: str, data: dict[str, Any]) -> RecordLocation:
            if refusing:
                self.trouble = "no room anywhere"
                return RecordLocation.NOWHERE
            self.trouble = None
            return save(self, key, data)

        monkeypatch.setattr(Checkpoint, "save", refuse)
        pod = a_pod()
        uid = stage.want(pod)
        await stage.until(lambda: "PreparePod" in str(stage.events.state) or stage.events.state)
        assert stage.runtime.methods() == [], "something was built that nothing on disk speaks of"
        assert any("cannot save the record" in event.message for event in stage.events.state.values())
        refusing = False
        for _ in range(4):
            poke(stage, pod, 30)
            await stage.network.settle()
        await stage.until(lambda: stage.running(uid))


@pytest.mark.long
async def test_a_record_that_cannot_be_deleted_does_not_stop_the_pods_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_stage(tmp_path) as stage:
        uid = await stage.run_pod(a_pod())
        failures = [OSError(errno.EMFILE, "Too many open files")]
        delete = Checkpoint.delete

        def refuse_once(self: Checkpoint, key: str) -> RecordLocation:
            if failures:
                raise failures.pop()
            return delete(self, key)

        monkeypatch.setattr(Checkpoint, "delete", refuse_once)
        stage.desired.delete(uid)
        await stage.until(lambda: "RemoveContainer" in stage.runtime.methods())
        stage.want(a_pod())  # desired again: the record is removed at once and created again
        await stage.until(lambda: stage.runtime.methods().count("StartContainer") == 2 and stage.running(uid))
        assert not failures
