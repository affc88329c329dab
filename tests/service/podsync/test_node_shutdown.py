"""podsync while the machine shuts down: pods stop group by group, a restart goes on, and they run again after the boot
(node.md 3)."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import NodeShutdown
from bus.messages.status import ShutdownReported
from bus.messages.streams import NODE_SHUTDOWN, SHUTDOWN_REPORTED
from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.podsync import service as podsync_service
from services.podsync.controllers import node_shutdown, pod_workers
from shared.files.checkpoint import RecordLocation
from shared.model.frozen_copy import replace
from shared.model.runtime import ContainerState
from shared.story.files import read_shutdown
from shared.story.text import node_data, node_text
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.crashes import ending_at
from tests.service.podsync.stage import Stage, cleared
from tests.service.podsync.test_podsync_service import a_pod

PERIODS = {0: 60, 100: 60, 1000: 60}  # seconds by priority
SIGNAL = "PrepareForShutdown"


class ShuttingStage(Stage):
    """A stage whose machine shuts down and boots."""

    def __init__(self, directory: Path, periods: Mapping[int, int] = PERIODS, **config: Any) -> None:
        super().__init__(directory, FakeRuntime(images=["busybox:1"]), **config)
        self.configure(periods)
        self.buses["status"] = self.network.bus("status")
        self.reported = self.buses["status"].own(SHUTDOWN_REPORTED)
        self.status_reports = True  # that all is written, once a shutdown is over
        self.shutdown = self.buses["server"].follow(NODE_SHUTDOWN, lambda _: self.report())

    def configure(self, periods: Mapping[int, int]) -> None:
        """Set the periods, as of the next start of podsync."""
        listed = ({"priority": lowest, "shutdownGracePeriodSeconds": seconds} for lowest, seconds in periods.items())
        self.config = replace(self.config, shutdown_grace_period_by_pod_priority=tuple(listed))

    async def pods_that_run(self, **priorities: int) -> None:
        for uid, priority in priorities.items():
            pod = a_pod(uid, priority=priority)
            pod["metadata"]["name"] = uid
            self.want(pod, "api")
        await self.until(lambda: all(self.running(uid) for uid in priorities))

    def signal(self, *, in_progress: bool = True) -> None:
        """logind says whether the machine shuts down."""
        self.podsync.shutdown.signalled(SIGNAL, in_progress)

    def report(self) -> None:
        """status says that all is written, where that is so."""
        if self.status_reports and self.shown().over:
            self.reported.put("node", ShutdownReported(began=self.shown().began))

    def shown(self) -> NodeShutdown:
        return self.shutdown.state.get("node", NodeShutdown(in_progress=False))

    def runs(self) -> list[str]:
        """The pods with a running container."""
        pods = self.runtime.pods().items()
        return sorted(uid for uid, pod in pods if any(c.state is ContainerState.RUNNING for c in pod.containers))

    def stopped(self) -> list[str]:
        """The pods in the order of the requests to stop a container of them."""
        uid_of = {c.id: uid for uid, pod in self.runtime.pods().items() for c in pod.containers}
        return [uid_of[str(request["container_id"])] for request in self.runtime.requests("StopContainer")]

    def observed(self) -> None:
        """pleg lists every pod."""
        for uid, pod in self.runtime.pods().items():
            self.seen.put(uid, pod)

    def restarts(self, uid: str) -> int:
        return int(self.status(uid)["containerStatuses"][0]["restartCount"])

    def shutdown_events(self) -> list[str]:
        return [event.message for event in self.events.state.values() if event.reason == "Shutdown"]


@asynccontextmanager
async def shutting_stage(directory: Path, **config: Any) -> AsyncIterator[ShuttingStage]:
    async with cleared(ShuttingStage(directory, **config)) as stage:
        yield stage


@contextmanager
def boot_of(machine: str) -> Iterator[None]:
    """While it holds, the machine has this boot id."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("boot_id", "start_of_programs"):
            patch.setattr(podsync_service, name, lambda *_: machine)
        yield


async def boot_again(stage: ShuttingStage, *, same_boot: bool = False) -> None:
    """The machine goes off, with whatever still runs, and boots. `same_boot`: only its programs start anew."""
    await stage.kill()
    for pod in stage.runtime.pods().values():
        for container in pod.containers:
            if container.state is ContainerState.RUNNING:
                stage.runtime.exit_container(container.id, 255)
    with nullcontext() if same_boot else boot_of("another boot"):
        await stage.start()
    stage.observed()


@pytest.mark.long
async def test_pods_stop_by_priority_and_run_again_after_the_boot(tmp_path: Path) -> None:
    async with shutting_stage(tmp_path) as stage:
        await stage.pods_that_run(high=1000, low=0, middle=150, lowest=-5)
        stage.signal()
        await stage.until(lambda: stage.shown().over)
        assert sorted(stage.stopped()[:2]) == ["low", "lowest"]
        assert stage.stopped()[2:] == ["middle", "high"]
        assert stage.runs() == []
        assert {stage.status(uid)["phase"] for uid in ("high", "low", "middle", "lowest")} == {"Running"}
        shown = stage.shown()
        assert (shown.in_progress, shown.signal, shown.unfinished) == (True, SIGNAL, ())
        assert stage.shutdown_events() == ["Shutdown manager detected shutdown event"]
        await boot_again(stage)
        await stage.until(lambda: all(stage.running(uid) for uid in ("high", "low", "middle", "lowest")))
        assert not stage.shown().in_progress


@pytest.mark.long
async def test_a_group_waits_until_the_volumes_of_the_one_before_are_unmounted(tmp_path: Path) -> None:
    async with shutting_stage(tmp_path) as stage:
        volumes = MountedVolumes(uid="low", volumes={"data": MountedVolume(state=VolumeState.MOUNTED)})
        stage.mounted.put("low", volumes)
        await stage.pods_that_run(low=0, high=1000)
        stage.signal()
        await stage.until(lambda: stage.stopped() == ["low"] and stage.runs() == ["high"])
        await stage.network.settle()
        assert [group.pods for group in stage.shown().groups] == [1, 0, 1]
        stage.mounted.delete("low")
        await stage.until(lambda: stage.shown().over)
        assert stage.stopped() == ["low", "high"]


async def test_volumes_whose_driver_is_gone_delay_the_others_by_the_time_of_their_group(tmp_path: Path) -> None:
    async with shutting_stage(tmp_path, periods={0: 10, 100: 60}) as stage:
        stage.mounted.put("low", MountedVolumes(uid="low", volumes={"data": MountedVolume(state=VolumeState.MOUNTED)}))
        await stage.pods_that_run(low=0, high=1000)
        stage.signal()
        await stage.until(lambda: stage.stopped() == ["low"] and stage.runs() == ["high"])
        stage.network.clock.advance(10.0)
        stage.signal()  # so that it decides again
        await stage.until(lambda: stage.shown().over)
        assert (stage.stopped(), stage.shown().unfinished) == (["low", "high"], ("low_default(low)",))


@pytest.mark.long
async def test_a_second_signal_gives_no_group_more_time(tmp_path: Path) -> None:
    async with shutting_stage(tmp_path, periods={0: 10, 100: 60}) as stage:
        await stage.pods_that_run(low=0, high=1000)
        hung = stage.runtime.hang("StopContainer")
        stage.signal()
        await stage.until(hung.reached.is_set)
        stage.network.clock.advance(9.9)
        stage.signal()
        await stage.network.settle()
        assert stage.stopped() == ["low"]
        stage.network.clock.advance(0.1)
        stage.signal()
        await stage.until(lambda: stage.stopped() == ["low", "high"] and stage.shown().over)
        assert stage.shutdown_events() == ["Shutdown manager detected shutdown event"]


async def test_a_pod_that_does_not_stop_delays_the_others_by_the_time_of_its_group(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with shutting_stage(tmp_path, periods={0: 1, 100: 60}) as stage:
        await stage.pods_that_run(low=0, high=1000)
        hung = stage.runtime.hang("StopContainer")
        stage.signal()
        await stage.until(hung.reached.is_set)
        assert stage.stopped() == ["low"]
        stage.network.clock.advance(1.0)
        await stage.until(lambda: stage.shown().over)
        assert (stage.stopped(), stage.shown().unfinished) == (["low", "high"], ("low_default(low)",))
        late = [event.name for event in stage.events.state.values() if event.reason == "ExceededGracePeriod"]
        assert late == ["low"]
        caplog.clear()
        await boot_again(stage)
        await stage.until(lambda: stage.running("low") and stage.running("high"))
        assert stage.shown().unfinished == ("low_default(low)",)
        assert "these pods had not stopped in time: low_default(low)" in caplog.text
    *_, shut_down, named = node_text(node_data({}, shutdown=read_shutdown(stage.config.root_dir, stage.config.run_dir)))
    assert "the machine shut down (PrepareForShutdown): all had their time by " in shut_down
    assert named == "pods that had not stopped in time: low_default(low)"


@pytest.mark.long
async def test_it_is_over_once_the_statuses_of_the_pods_are_saved_and_published(tmp_path: Path) -> None:
    async with shutting_stage(tmp_path) as stage:
        await stage.pods_that_run(low=0)
        saver, held = stage.podsync.loop.workers._saver, asyncio.Event()
        save, reached = saver.save, asyncio.Event()

        async def save_later(key: str, data: dict[str, Any]) -> RecordLocation:
            reached.set()
            await held.wait()  # the disk is busy
            return await save(key, data)

        hung = stage.runtime.hang("StopContainer")
        stage.signal()
        await stage.until(hung.reached.is_set)
        saver.save = save_later  # type: ignore[method-assign]
        hung.release.set()
        await stage.until(reached.is_set)
        await stage.network.settle()
        assert not stage.shown().over
        held.set()
        await stage.until(lambda: stage.shown().over)
        assert "running" not in stage.status("low")["containerStatuses"][0]["state"]


async def test_a_pod_whose_turn_had_not_come_when_the_machine_went_off_runs_again(tmp_path: Path) -> None:
    async with shutting_stage(tmp_path) as stage:
        for uid, priority in (("low", 0), ("high", 1000)):
            pod = a_pod(uid, priority=priority, restartPolicy="Never")
            pod["metadata"]["name"] = uid
            stage.want(pod, "api")
        await stage.until(lambda: stage.running("low") and stage.running("high"))
        hung = stage.runtime.hang("StopContainer")
        stage.signal()
        await stage.until(hung.reached.is_set)
        await boot_again(stage)  # logind did not wait for all groups
        await stage.until(lambda: all(stage.restarts(uid) == 1 and stage.running(uid) for uid in ("low", "high")))
        for container in stage.runtime.pods()["high"].containers:
            if container.state is ContainerState.RUNNING:
                stage.runtime.exit_container(container.id, 1)
        await stage.kill()
        with boot_of("another boot"):
            await stage.start()
        stage.observed()
        await stage.until(lambda: stage.status("high")["phase"] == "Failed")


@pytest.mark.long
async def test_a_cancelled_shutdown_lets_the_pods_run_again(tmp_path: Path) -> None:
    async with shutting_stage(tmp_path) as stage:
        await stage.pods_that_run(low=0, high=1000)
        hung = stage.runtime.hang("StopContainer")
        stage.signal()
        await stage.until(hung.reached.is_set)
        stage.signal()  # a second signal of the same shutdown
        stage.signal(in_progress=False)
        await stage.until(lambda: not stage.shown().in_progress)
        hung.release.set()
        await stage.until(lambda: stage.runs() == ["high", "low"])
        assert stage.stopped() == ["low"]
        await stage.pods_that_run(new=0)
        assert stage.shutdown_events()[-1] == "Shutdown manager detected shutdown cancellation"


async def test_no_pod_is_admitted_while_the_machine_shuts_down(tmp_path: Path) -> None:
    async with shutting_stage(tmp_path) as stage:
        stage.signal()
        await stage.until(lambda: stage.shown().over)
        uid = stage.want(a_pod(), "api")
        await stage.until(lambda: stage.status(uid).get("reason") == "NodeShutdown")
        assert stage.status(uid)["message"] == "Pod was rejected: Pod was rejected as the node is shutting down."


@pytest.mark.long
async def test_the_file_of_the_go_kubelet_and_the_metrics_show_the_shutdown(tmp_path: Path) -> None:
    names = tuple(f"kubelet_graceful_shutdown_{kind}_time_seconds" for kind in ("start", "end"))
    async with shutting_stage(tmp_path) as stage:
        assert [stage.counted(name) for name in names] == [{(): [0.0]}, {(): [0.0]}]
        stage.signal()
        await stage.until(lambda: stage.shown().over)
        file = tmp_path / "root" / "graceful_node_shutdown_state"
        assert json.loads(file.read_text()).keys() == {"startTime", "endTime"}
        assert file.stat().st_mode & 0o777 == 0o644
        counted = [stage.counted(name) for name in names]
        await stage.restart()
        assert [int(stage.counted(name)[()][0]) for name in names] == [int(series[()][0]) for series in counted]


async def test_without_time_for_pods_a_shutdown_is_not_followed(tmp_path: Path) -> None:
    async with shutting_stage(tmp_path, periods={}) as stage:
        await stage.pods_that_run(low=0)
        assert not stage.podsync.shutdown.is_followed
        assert (dict(stage.shutdown.state), stage.shutdown.complete) == ({}, True)


@pytest.mark.long
async def test_pods_that_were_stopped_run_again_where_the_configuration_gives_them_no_time_any_more(
    tmp_path: Path,
) -> None:
    async with shutting_stage(tmp_path) as stage:
        await stage.pods_that_run(low=0)
        stage.signal()
        await stage.until(lambda: stage.shown().over)
        await stage.kill()
        stage.configure({})
        await stage.start()
        stage.observed()
        await stage.until(lambda: stage.running("low"))


# The shutdown begins, its groups begin one after the other, it is over.
POINTS = [f"podsync.shutdown.{step} {number}" for step in ("saved", "published") for number in (1, 2, 3, 4)]
POINTS += [f"podsync.{step}.KillPod {number}" for step in ("saved", "published", "acted") for number in (1, 3)]


@pytest.mark.share(4)
@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_at_this_point_ends_as_without_it(point: str, tmp_path: Path) -> None:
    number = int(point.partition(" ")[2])
    async with shutting_stage(tmp_path) as stage:
        await stage.pods_that_run(low=0, middle=100, high=1000)
        with ending_at(point, node_shutdown, pod_workers) as met:
            stage.signal()
            await stage.until(lambda: len(met) >= number)
            await stage.kill()
        await stage.start()
        stage.observed()
        stage.signal()
        await stage.until(lambda: stage.shown().over)
        assert list(dict.fromkeys(stage.stopped())) == ["low", "middle", "high"]
        assert (stage.runs(), stage.shown().unfinished) == ([], ())
        await boot_again(stage)
        await stage.until(lambda: all(stage.running(uid) for uid in ("low", "middle", "high")))
        assert {stage.restarts(uid) for uid in ("low", "middle", "high")} == {1}


@pytest.mark.parametrize("step", ["saved", "published"])
async def test_a_kill_while_the_cancellation_is_saved_leaves_no_pod_stopped(step: str, tmp_path: Path) -> None:
    async with shutting_stage(tmp_path) as stage:
        await stage.pods_that_run(low=0)
        stage.signal()
        await stage.until(lambda: stage.shown().over)
        with ending_at(f"podsync.shutdown.{step} 1", node_shutdown, pod_workers) as met:
            stage.signal(in_progress=False)
            await stage.until(lambda: met)
            await stage.kill()
        await stage.start()
        stage.observed()
        await stage.until(lambda: stage.running("low"))
