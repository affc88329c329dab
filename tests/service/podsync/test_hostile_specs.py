"""Pods made to be costly hold up no other pod and take little memory: 10 MB of them, one after another.

Time is CPU time of the event loop's thread, and as a share of a fixed piece of work measured in the same run: other
load on the machine makes both longer.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import thread_time
from typing import Any

import orjson
import pytest

from bus.messages.podsync import PodState
from bus.messages.volume import (
    MountedVolume,
    MountedVolumes,
    PreparedSubpath,
    PrepareSubpath,
    ReleaseSubpaths,
    VolumeState,
)
from services.podsync.adapters.cluster_reads import SourcesReads
from services.podsync.controllers.pod_loop import PodLoop
from services.podsync.core.pod.tracked_pod import TrackedPod
from shared.cri.interface import Message
from shared.model.objects import Object
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.hostile_specs import IMAGE, KINDS, LARGEST_POD, HostileSources, hostile_pods, write_env_files
from tests.service.podsync.stage import Stage

DEADLINE_SECONDS = 300.0  # of one pod
MOST_SECONDS = 0.1  # of one event
MOST_MEMORY = 64 << 20  # bytes
SMALL = 20_000  # bytes of a pod
_REFERENCE_SECONDS = 0.06  # what `_fixed_work` takes on the machine that MOST_SECONDS is meant for


class ForgetfulRuntime(FakeRuntime):
    """Keeps nothing of what it is asked for."""

    async def create_container(self, sandbox_id: str, config: Message, sandbox_config: Message) -> str:
        made = await super().create_container(sandbox_id, config, sandbox_config)
        self._containers[made].config = {"metadata": config["metadata"]}
        self.calls.clear()
        return made


class Watch:
    """The longest steps of podsync: events taken in, and turns of its tasks."""

    def __init__(self) -> None:
        self.pod = ""
        self.longest: dict[str, float] = {}  # pod and what was done -> seconds

    def note(self, what: str, seconds: float) -> None:
        """One step."""
        key = f"{self.pod}: {what}"
        self.longest[key] = max(self.longest.get(key, 0.0), seconds)

    def too_long(self) -> dict[str, int]:
        """The steps that took longer than allowed, in milliseconds."""
        most = MOST_SECONDS * max(1.0, _fixed_work() / _REFERENCE_SECONDS)
        return {key: round(seconds * 1000) for key, seconds in self.longest.items() if seconds > most}


def _fixed_work() -> float:
    before = thread_time()
    orjson.loads(orjson.dumps([{"name": f"n{n}", "value": [n] * 3} for n in range(30_000)]))
    return thread_time() - before


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Time every step of podsync until the end of the block."""
    watch, handle, run = Watch(), PodLoop.handle, asyncio.events.Handle._run

    def timed_handle(service: PodLoop, event: Any) -> None:
        before = thread_time()
        handle(service, event)
        watch.note(type(event).__name__, thread_time() - before)

    def timed_run(of: asyncio.events.Handle) -> None:
        before = thread_time()
        run(of)
        task = getattr(getattr(of, "_callback", None), "__self__", None)
        if isinstance(task, asyncio.Task):
            code = getattr(task.get_coro(), "cr_code", None)
            if code is not None and "/services/podsync/" in code.co_filename:
                watch.note(f"{code.co_qualname} of {task.get_name().partition(' ')[0]}", thread_time() - before)

    with monkeypatch.context() as patched:
        patched.setattr(PodLoop, "handle", timed_handle)
        patched.setattr(asyncio.events.Handle, "_run", timed_run)
        yield watch


class HostileStage(Stage):
    """Sources with hostile objects, and a volume that mounts everything at once. Nothing else follows podsync: the
    memory of this process is podsync's."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, ForgetfulRuntime(images=[IMAGE]))
        del self.buses["server"]
        self._files = directory / "files"
        write_env_files(self._files)
        self.with_volumes: set[str] = set()  # UIDs of the pods whose volumes are mounted
        HostileSources(self.buses["sources"], seed=1)
        self.buses["volume"].answer(PrepareSubpath, self._prepared)
        self.buses["volume"].answer(ReleaseSubpaths, self._prepared)

    async def _prepared(self, request: PrepareSubpath | ReleaseSubpaths) -> PreparedSubpath:
        return PreparedSubpath(host_path="/subpath")

    def record(self, uid: str) -> TrackedPod | None:
        """What podsync knows of the pod, None = nothing any more."""
        return self.podsync.core.tracked.get(uid)

    def mount(self, tracked: TrackedPod) -> None:
        """What volume does once the pod is admitted."""
        known = tracked.last_written.published.volumes if tracked.last_written.published else None
        if known is not None and known.volumes and tracked.uid not in self.with_volumes:
            self.with_volumes.add(tracked.uid)
            paths = {name: str(self._files) if name == "files" else f"/v/{name}" for name in known.volumes}
            mounted = {name: MountedVolume(state=VolumeState.MOUNTED, host_path=path) for name, path in paths.items()}
            self.mounted.put(tracked.uid, MountedVolumes(uid=tracked.uid, volumes=mounted))

    def unmount(self, uid: str) -> None:
        """What volume does once the containers are gone."""
        if uid in self.with_volumes:
            self.with_volumes.remove(uid)
            self.mounted.delete(uid)


async def opened(stage: HostileStage) -> None:
    """Start podsync, as on a node of a cluster."""
    await stage.open()
    stage.podsync.calls.cluster = SourcesReads(stage.podsync.bus, "node1")


def came_to_something(stage: HostileStage, uid: str) -> bool:
    """It was rejected, or each of its containers runs or has a reason why it does not."""
    tracked = stage.record(uid)
    if tracked is None or not tracked.saved.admission_decided:
        return False
    if tracked.saved.rejected:
        return True
    stage.mount(tracked)
    status = tracked.status
    states = [one["state"] for one in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))]
    waits = [state["waiting"].get("reason", "ContainerCreating") for state in states if "waiting" in state]
    return bool(states) and ("initContainerStatuses" in status or "ContainerCreating" not in waits)


async def until(stage: HostileStage, condition: Callable[[], object]) -> None:
    """As the stage's own, with a deadline for a machine that does other things as well."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():
            await stage.network.settle()
            await asyncio.sleep(0.001)


async def run_and_delete(stage: HostileStage, pod: Object) -> None:
    """The pod comes and goes; the test keeps nothing of it."""
    uid = stage.want(pod, "api")
    pod.clear()
    await until(stage, lambda: came_to_something(stage, uid))
    stage.desired.delete(uid)
    await until(stage, lambda: (tracked := stage.record(uid)) is None or not tracked.alive)
    stage.unmount(uid)
    await until(stage, lambda: (tracked := stage.record(uid)) is None or tracked.saved.state is PodState.FINISHED)
    stage.network.clock.advance(61.0)  # a minute later what is left of it is collected
    stage.podsync.loop._wake_up()
    await until(stage, lambda: stage.record(uid) is None)


def memory(field: str) -> int:
    """VmRSS or VmHWM of this process, bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) << 10


async def hostile_pods_come_and_go(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *, total: int, largest: int
) -> None:
    """`total` bytes of them, one after another: no step of podsync is too long, and its memory stays as it was."""
    monkeypatch.setenv("HOME", str(directory))
    stage = HostileStage(directory)
    await opened(stage)
    try:
        for _, pod in hostile_pods(0, SMALL * len(KINDS), SMALL):  # what each kind makes once in a process is made here
            await run_and_delete(stage, pod)
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        before = memory("VmRSS")
        with watched(monkeypatch) as watch:
            for kind, pod in hostile_pods(7, total, largest):
                watch.pod = kind
                await run_and_delete(stage, pod)
                watch.pod = f"after {kind}"
        grown = memory("VmHWM") - before
        assert watch.too_long() == {}
        assert grown < MOST_MEMORY, f"grew by {grown >> 20} MiB"
    finally:
        await stage.kill()
        for bus in stage.buses.values():
            await bus.stop()


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_ten_megabytes_of_hostile_pods_hold_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await hostile_pods_come_and_go(tmp_path, monkeypatch, total=10 << 20, largest=LARGEST_POD)
