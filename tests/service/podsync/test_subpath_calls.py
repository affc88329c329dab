"""Subpaths are asked for before a container is created and given back once its start has returned (pods.md 6.8)."""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from bus.messages.volume import (
    MountedVolume,
    PreparedSubpath,
    PrepareSubpath,
    ReleaseSubpaths,
    VolumeState,
)
from services.podsync.adapters.pod.subpaths import Subpaths
from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.pod.call_results import ContainerCreated
from services.podsync.core.pod.events import CallDone, CallFailed
from services.podsync.core.pod.instructions import StartContainer
from shared.model.objects import Object
from tests.fakes.memory_bus import MemoryNetwork
from tests.service.podsync.performer import UID, Performer, a_container, a_pod

MOUNTS = [
    {"name": "data", "mountPath": "/all"},
    {"name": "data", "mountPath": "/part", "subPathExpr": "of-$(WHO)"},
    {"name": "data", "mountPath": "/other", "subPath": "a/b"},
]


class Volume(Subpaths):
    """Plays volume for the calls."""

    def __init__(self) -> None:
        self.asked: list[dict[int, str]] = []
        self.released: list[str] = []
        self.refuses = ""

    async def prepare(self, uid: str, container: Object, wanted: Mapping[int, str]) -> dict[int, str]:
        self.asked.append(dict(wanted))
        if self.refuses:
            raise ContainerConfigError(self.refuses)
        return {index: f"/prepared/{path}" for index, path in wanted.items()}

    async def release(self, uid: str, container: Object) -> None:
        self.released.append(str(container["name"]))


class Begun(Performer):
    """A pod whose container is about to be created."""

    def __init__(self, directory: Path) -> None:
        spec = a_container(env=[{"name": "WHO", "value": "me"}], volumeMounts=MOUNTS, terminationMessagePath="")
        pod = a_pod(spec, enableServiceLinks=True, volumes=[{"name": "data", "emptyDir": {}}])
        self.volume = Volume()
        data = MountedVolume(state=VolumeState.MOUNTED, host_path="/data")
        super().__init__(directory, pod, subpaths=self.volume, volumes={"data": data})


async def test_paths_are_expanded_asked_for_and_mounted(tmp_path: Path) -> None:
    begun = Begun(tmp_path)
    done = await begun.create()
    assert isinstance(done, CallDone), done
    assert begun.volume.asked == [{1: "of-me", 2: "a/b"}]
    [request] = begun.runtime.requests("CreateContainer")
    mounts = {m["container_path"]: m["host_path"] for m in request["config"]["mounts"]}
    assert mounts["/all"] == "/data"
    assert (mounts["/part"], mounts["/other"]) == ("/prepared/of-me", "/prepared/a/b")
    assert begun.volume.released == []


@pytest.mark.parametrize("start_fails", [False, True])
async def test_they_are_given_back_once_the_start_has_returned(tmp_path: Path, start_fails: bool) -> None:
    begun = Begun(tmp_path)
    done = await begun.create()
    assert isinstance(done, CallDone) and isinstance(done.result, ContainerCreated)
    if start_fails:
        begun.runtime.fail("StartContainer", "Unknown", "no")
    await begun.perform(StartContainer(uid=UID, container="c", container_id=done.result.container_id, attempt=0))
    assert begun.volume.released == ["c"]


async def test_they_are_given_back_where_there_will_be_no_start(tmp_path: Path) -> None:
    begun = Begun(tmp_path)
    begun.runtime.fail("CreateContainer", "Unknown", "no")
    assert isinstance(await begun.create(), CallFailed)
    assert begun.volume.released == ["c"]


async def test_what_cannot_be_prepared_is_a_config_error(tmp_path: Path) -> None:
    begun = Begun(tmp_path)
    begun.volume.refuses = "failed to prepare subPath"
    failed = await begun.create()
    assert isinstance(failed, CallFailed)
    assert (failed.reason, failed.text) == ("CreateContainerConfigError", "failed to prepare subPath")
    assert not begun.runtime.requests("CreateContainer")


async def test_they_are_asked_of_volume(tmp_path: Path) -> None:
    network = MemoryNetwork()
    podsync, volume = network.bus("podsync"), network.bus("volume")
    requests: list[object] = []

    async def prepare(request: PrepareSubpath) -> PreparedSubpath:
        requests.append(request)
        return PreparedSubpath(error="no such thing") if request.path == "bad" else PreparedSubpath(host_path="/here")

    async def release(request: ReleaseSubpaths) -> PreparedSubpath:
        requests.append(request)
        return PreparedSubpath()

    volume.answer(PrepareSubpath, prepare)
    volume.answer(ReleaseSubpaths, release)
    for bus in (podsync, volume):
        await bus.start()
    subpaths = Subpaths(podsync)
    spec = a_container(volumeMounts=MOUNTS)
    assert await subpaths.prepare(UID, spec, {2: "a/b"}) == {2: "/here"}
    with pytest.raises(ContainerConfigError, match="no such thing"):
        await subpaths.prepare(UID, spec, {1: "bad"})
    await subpaths.release(UID, spec)
    await subpaths.release(UID, a_container())  # it has none
    assert requests == [
        PrepareSubpath(uid=UID, volume="data", container="c", index=2, path="a/b"),
        PrepareSubpath(uid=UID, volume="data", container="c", index=1, path="bad"),
        ReleaseSubpaths(uid=UID, container="c"),
    ]
    for bus in (podsync, volume):
        await bus.stop()


async def test_of_many_a_few_are_asked_for_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    network = MemoryNetwork()
    bus = network.bus("podsync")
    held = most = 0

    async def ask(*request: object) -> PreparedSubpath:
        nonlocal held, most
        held += 1
        most = max(most, held)
        await asyncio.sleep(0)
        held -= 1
        return PreparedSubpath(host_path="/p")

    monkeypatch.setattr(bus, "ask", ask)
    mounts = [{"name": "data", "mountPath": f"/m{n}", "subPath": "s"} for n in range(1_000)]
    wanted = dict.fromkeys(range(1_000), "s")
    assert len(await Subpaths(bus).prepare(UID, {"name": "c", "volumeMounts": mounts}, wanted)) == 1_000
    assert most == 16


async def test_the_messages_of_a_large_pod_are_made_beside_the_event_loop(tmp_path: Path) -> None:
    begun = Begun(tmp_path)
    made_in: list[threading.Thread] = []

    def make() -> None:
        made_in.append(threading.current_thread())

    await begun.calls.build(begun.view(), make)
    begun.pod["spec"]["containers"][0]["env"] = [{"name": f"V{n}", "value": "x"} for n in range(1_000)]
    await begun.calls.build(begun.view(), make)
    assert [thread is threading.main_thread() for thread in made_in] == [True, False]
