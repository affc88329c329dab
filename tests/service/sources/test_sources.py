"""Sources on the in-memory bus with a real static pod path: what the other processes receive of the files in it."""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus.messages.sources import DesiredPod
from bus.messages.streams import PODS_DESIRED, events_of
from services.frame.launch import Context
from services.sources.adapters.manifest_files import ManifestFiles
from services.sources.core import file_source
from services.sources.core.file_source import ManifestFile
from services.sources.core.yaml_document import read_document
from services.sources.service import build
from shared.config.effective import EffectiveConfig
from shared.model import objects
from shared.time.clock import Clock, SystemClock
from tests.fakes.followed import FollowedStream
from tests.fakes.memory_bus import MemoryNetwork
from tests.service.running_service import running_service
from tests.support.waits.deadline import WAIT_SECONDS

MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  containers: [{{name: main, image: "{image}"}}]
"""


def manifest(name: str, image: str = "busybox") -> str:
    return MANIFEST.format(name=name, image=image)


def pod_names(state: dict[str, DesiredPod]) -> list[str]:
    return sorted(objects.name(desired.pod) for desired in state.values())


def images(state: dict[str, DesiredPod]) -> list[str]:
    return sorted(desired.pod["spec"]["containers"][0]["image"] for desired in state.values())


class Node:
    """One run directory, one manifest path, and sources, started again and again."""

    def __init__(self, tmp_path: Path) -> None:
        self.network = MemoryNetwork()
        self.manifests = tmp_path / "manifests"
        self.root_dir, self.run_dir = tmp_path / "root", tmp_path / "run"
        self.run_dir.mkdir()
        follower = self.network.bus("podsync")
        self.desired = FollowedStream(follower, PODS_DESIRED)
        self.events = FollowedStream(follower, events_of("sources"))
        self._follower = follower

    async def start(self) -> None:
        await self._follower.start()

    @contextlib.asynccontextmanager
    async def sources(
        self, *, path: str | None = None, clock: Clock | None = None, frequency: float = 20.0
    ) -> AsyncIterator[None]:
        config = EffectiveConfig(
            node_name="Node1",
            root_dir=str(self.root_dir),
            run_dir=str(self.run_dir),
            log_dir="",
            cert_dir="",
            static_pod_path=str(self.manifests) if path is None else path,
            file_check_frequency=frequency,
        )
        bus = self.network.bus("sources")
        service = build(Context("sources", config, bus, clock or self.network.clock, asyncio.Event()))
        async with running_service(self.network, bus, service):
            yield

    def write(self, name: str, text: str) -> Path:
        self.manifests.mkdir(exist_ok=True)
        path = self.manifests / name
        path.write_text(text)
        return path


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    await node.start()
    return node


async def test_without_a_static_pod_path_the_stream_is_empty_and_complete_at_once(node: Node) -> None:
    async with node.sources(path=""):
        assert await node.desired.until_complete() == {}


async def test_a_missing_path_is_an_empty_complete_set_and_may_appear_later(node: Node) -> None:
    async with node.sources(path=str(node.manifests / "deeper" / "still")):
        assert await node.desired.until_complete() == {}
        (node.manifests / "deeper" / "still").mkdir(parents=True)
        (node.manifests / "deeper" / "still" / "web.yaml").write_text(manifest("web"))
        assert pod_names(await node.desired.until(bool)) == ["web-node1"]


@pytest.mark.long
async def test_pods_are_published_before_the_set_is_called_complete(node: Node) -> None:
    node.write("a.yaml", manifest("a"))
    node.write(
        "b.json",
        '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}',
    )
    async with node.sources():
        state = await node.desired.until_complete()
    assert pod_names(state) == ["a-node1", "b-node1"]
    for uid, desired in state.items():
        annotations = objects.annotations(desired.pod)
        assert (desired.uid, objects.uid(desired.pod), annotations["kubernetes.io/config.hash"]) == (uid, uid, uid)
        assert (desired.source, annotations["kubernetes.io/config.source"]) == ("file", "file")
        assert annotations["kubernetes.io/config.seen"].startswith("2023-11-14T")


async def test_added_edited_and_removed_files_are_noticed_without_a_rescan(node: Node) -> None:
    async with node.sources():
        await node.desired.until_complete()
        node.write("web.yaml", manifest("web", "one"))
        (old,) = await node.desired.until(bool)
        node.write("web.yaml", manifest("web", "two"))
        (new,) = await node.desired.until(lambda state: images(state) == ["two"])
        (node.manifests / "web.yaml").unlink()
        await node.desired.until(lambda state: not state)
    assert node.desired.history == [f"put {old}", f"delete {old}", f"put {new}", f"delete {new}"]


async def test_a_manifest_that_takes_long_to_read_stops_nothing_else(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, going = threading.Event(), threading.Event()

    def slow(content: bytes) -> object:
        entered.set()
        assert going.wait(60), "the event loop waits for the manifest"
        return read_document(content)

    monkeypatch.setattr(file_source, "read_document", slow)
    async with node.sources():
        await node.desired.until_complete()
        node.write("web.yaml", manifest("web"))
        async with asyncio.timeout(WAIT_SECONDS):
            while not entered.is_set():
                await asyncio.sleep(0.01)
        going.set()
        assert pod_names(await node.desired.until(bool)) == ["web-node1"]


async def test_a_manifest_that_is_moved_or_saved_again_changes_nothing(node: Node) -> None:
    async with node.sources():
        node.write("web.yaml", manifest("web"))
        (uid,) = await node.desired.until(bool)
        for number in range(20):  # by names before and after the present one, as the directory lists them
            (node.manifests / "web.yaml").rename(node.manifests / f"{number % 2 * 'x'}{number}.yaml")
            (node.manifests / f"{number % 2 * 'x'}{number}.yaml").rename(node.manifests / "web.yaml")
        (node.manifests / "web.yaml").rename(node.manifests / "moved.yaml")
        node.write("moved.yaml", manifest("web") + "# saved again\n")
        node.write("last.yaml", manifest("last"))
        await node.desired.until(lambda state: pod_names(state) == ["last-node1", "web-node1"])
    async with node.sources():
        await node.desired.until_complete()
        node.write("later.yaml", manifest("later"))
        await node.desired.until(lambda state: len(state) == 3)
    assert [change for change in node.desired.history if uid in change] == [f"put {uid}"]


async def test_a_file_missed_by_one_listing_of_the_directory_is_not_gone(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename while the directory is listed can hide a file under both of its names."""
    look, hidden = ManifestFiles.look, dict[ManifestFiles, bool]()

    def look_past(files: ManifestFiles) -> dict[str, ManifestFile]:
        hidden[files] = not hidden.get(files, False)
        return {} if hidden[files] else look(files)

    async with node.sources():
        node.write("web.yaml", manifest("web"))
        (uid,) = await node.desired.until(bool)
        monkeypatch.setattr(ManifestFiles, "look", look_past)
        node.write("more.yaml", manifest("more"))
        await node.desired.until(lambda state: len(state) == 2)
    assert f"delete {uid}" not in node.desired.history


async def test_a_file_renamed_into_place_and_a_link_are_noticed(node: Node, tmp_path: Path) -> None:
    async with node.sources():
        node.manifests.mkdir()
        (tmp_path / "renamed").write_text(manifest("renamed"))
        (tmp_path / "renamed").rename(node.manifests / "renamed.yaml")
        (tmp_path / "target").write_text(manifest("linked"))
        (node.manifests / "linked.yaml").symlink_to(tmp_path / "target")
        await node.desired.until(lambda state: pod_names(state) == ["linked-node1", "renamed-node1"])


async def test_hidden_files_and_subdirectories_are_ignored(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.write(".hidden.yaml", manifest("hidden"))
    node.write("web.yaml", manifest("web"))
    (node.manifests / "folder").mkdir()
    (node.manifests / "folder" / "inner.yaml").write_text(manifest("inner"))
    (node.manifests / "dangling").symlink_to("/nowhere/at/all")
    os.mkfifo(node.manifests / "fifo")
    async with node.sources():
        assert pod_names(await node.desired.until_complete()) == ["web-node1"]
    assert "folder: ignored in the static pod path: it is a directory" in caplog.text
    assert "fifo: ignored in the static pod path" in caplog.text


async def test_the_path_may_be_a_single_file(node: Node) -> None:
    path = node.write("only.yaml", manifest("only"))
    node.write("other.yaml", manifest("other"))
    async with node.sources(path=str(path) + "/"):
        assert pod_names(await node.desired.until_complete()) == ["only-node1"]
        node.write("only.yaml", manifest("only", "two"))
        await node.desired.until(lambda state: images(state) == ["two"])
        path.unlink()
        await node.desired.until(lambda state: not state)


async def test_the_directory_may_be_replaced_as_a_whole(node: Node, tmp_path: Path) -> None:
    node.write("web.yaml", manifest("web"))
    async with node.sources():
        await node.desired.until(bool)
        node.manifests.rename(tmp_path / "away")
        await node.desired.until(lambda state: not state)
        node.write("db.yaml", manifest("db"))
        await node.desired.until(lambda state: pod_names(state) == ["db-node1"])
        (tmp_path / "away" / "late.yaml").write_text(manifest("late"))
        node.write("end.yaml", manifest("end"))
        await node.desired.until(lambda state: pod_names(state) == ["db-node1", "end-node1"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not YAML"),
        ("kind: ConfigMap\napiVersion: v1\n", "must be v1 and Pod"),
        ("apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i}]}", "name is needed for the pod"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {}", "spec.containers"),
        ("apiVersion: v1\nkind: PodList\nitems: []", "must be v1 and Pod"),
        (manifest("web") + "---" + manifest("web"), "2 YAML documents"),
        ("", "the file is empty"),
        ("\x00\x01", "not YAML"),
    ],
)
async def test_a_manifest_that_becomes_bad_keeps_the_old_pod_and_reports_the_reason(
    node: Node, caplog: pytest.LogCaptureFixture, text: str, reason: str
) -> None:
    path = node.write("web.yaml", manifest("web"))
    async with node.sources(clock=SystemClock(), frequency=0.02):  # full looks come and go meanwhile
        (uid,) = await node.desired.until(bool)
        path.write_text(text)
        (event,) = (await node.events.until(lambda events: len(events) == 1)).values()
        node.write("z.yaml", manifest("z"))
        await node.desired.until(lambda state: len(state) == 2)
        assert uid in node.desired.state
        assert len(node.events.state) == 1
    assert (event.type, event.reason, event.uid, event.name) == ("Warning", "FailedValidation", uid, "web-node1")
    assert event.message.startswith(f"{path}: ") and reason in event.message
    assert event.message in caplog.text
    assert "\n" not in event.message


async def test_a_bad_manifest_is_a_trouble_of_the_process_until_it_is_corrected(node: Node) -> None:
    path = node.write("web.yaml", "{")
    async with node.sources():
        await node.events.until(bool)
        troubles = [line for beat in [node.network._buses["sources"]._present_beat()] for line in beat.troubles]
        assert [line.startswith(f"{path}: not YAML") for line in troubles] == [True]
        node.write("web.yaml", manifest("web"))
        await node.desired.until(bool)
        assert node.network._buses["sources"]._present_beat().troubles == ()


async def test_a_half_copied_manifest_is_not_taken_for_a_whole_one(node: Node) -> None:
    path = node.write("web.yaml", manifest("web"))
    async with node.sources():
        (uid,) = await node.desired.until(bool)
        with path.open("w") as file:
            file.write("apiVersion: v1\nkind: Pod\n")
            file.flush()
            node.write("other.yaml", manifest("other"))  # makes sources look at everything
            await node.desired.until(lambda state: len(state) == 2)
            assert uid in node.desired.state
            file.write('metadata: {name: web}\nspec: {containers: [{name: c, image: "new"}]}\n')
        await node.desired.until(lambda state: "new" in images(state))
    assert node.events.state == {}


async def test_a_change_that_inotify_cannot_see_is_found_by_the_full_look(node: Node, tmp_path: Path) -> None:
    node.manifests.mkdir()
    (tmp_path / "target").write_text(manifest("web", "one"))
    (node.manifests / "web.yaml").symlink_to(tmp_path / "target")
    async with node.sources(clock=SystemClock(), frequency=0.05):
        await node.desired.until(bool)
        (tmp_path / "target").write_text(manifest("web", "two"))
        await node.desired.until(lambda state: images(state) == ["two"])


async def test_a_restart_keeps_uid_and_first_seen_time(node: Node) -> None:
    node.write("web.yaml", manifest("web"))
    async with node.sources():
        before = await node.desired.until_complete()
    node.network.clock.advance(3600)
    node.write("later.yaml", manifest("later"))
    async with node.sources():
        after = await node.desired.until(lambda state: len(state) == 2)
    assert {uid: after[uid] for uid in before} == before
    assert node.desired.history.count(f"put {next(iter(before))}") == 1


async def test_a_restart_while_a_file_is_broken_keeps_its_pod(node: Node) -> None:
    path = node.write("web.yaml", manifest("web"))
    async with node.sources():
        before = await node.desired.until_complete()
    path.write_text("apiVersion: v1\nkind: P")
    async with node.sources():
        await node.events.until(bool)
        assert node.desired.state == before
        path.unlink()
        await node.desired.until(lambda state: not state)
        async with asyncio.timeout(WAIT_SECONDS):  # the record goes after the removal is published, in a thread
            while list((node.root_dir / "sources" / "manifests").glob("*.json")):
                await asyncio.sleep(0.001)


async def test_a_pod_whose_file_went_between_two_looks_is_not_in_the_complete_set(node: Node) -> None:
    path = node.write("web.yaml", manifest("web"))
    async with node.sources():
        await node.desired.until_complete()
    path.unlink()
    async with node.sources():
        await node.desired.until(lambda state: not state)


async def test_records_that_cannot_be_written_do_not_keep_a_pod_from_running(node: Node) -> None:
    node.root_dir.write_text("a file where a directory should be")
    node.write("web.yaml", manifest("web"))
    async with node.sources():
        assert pod_names(await node.desired.until(bool)) == ["web-node1"]


async def test_records_of_a_newer_version_stay_and_keep_no_pod_from_running(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    records = node.root_dir / "sources" / "manifests"
    newer = {"a.json": b'{"version":2}', "b.json": b'{"version":1,"key":"b","number":1,"data":{"version":2}}'}
    records.mkdir(parents=True)
    for name, content in newer.items():
        (records / name).write_bytes(content)
    node.write("web.yaml", manifest("web"))
    async with node.sources():
        assert pod_names(await node.desired.until(bool)) == ["web-node1"]
    assert {name: (records / name).read_bytes() for name in newer} == newer
    assert len([line for line in caplog.messages if "newer version" in line]) == 2
