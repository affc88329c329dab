"""Who may use an image that is here, and what is noted on disk of each pull: rights, records, intents, kills."""

import asyncio
import threading
from pathlib import Path

import pytest

from services.podsync.adapters.images.image_pulls import ImageCallError
from services.podsync.adapters.images.image_record_files import ImageRecordFiles
from services.podsync.core.images.image_records import PulledRecord, file_name
from shared.cri.interface import ImageStatus, RuntimeCallError
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.registry_stage import IMAGE, REGISTRY, PullStage, pod, stage
from tests.service.podsync.stage import on_stage

__all__ = ["stage"]

GONE = f"{REGISTRY}/gone:1"


async def test_what_was_pulled_with_a_secret_is_not_for_a_pod_without_it(stage: PullStage) -> None:
    stage.cluster.add("a", "ann")
    stage.only("ann")
    await stage.pull(pod("a"))
    assert await stage.may_use(pod("a"))
    assert not await stage.may_use(pod())
    stage.live()
    assert await stage.may_use(pod("a", uid="p2"))
    assert not await stage.may_use(pod(uid="p2"))


async def test_an_image_pulled_without_credentials_is_for_all_pods(stage: PullStage) -> None:
    await stage.pull(pod())
    stage.live()
    assert await stage.may_use(pod("missing"))


async def test_an_image_that_was_here_before_is_for_all_pods(stage: PullStage) -> None:
    stage.runtime.add_image(IMAGE)
    assert await stage.may_use(pod())
    assert stage.files("pulled") == []


async def test_the_same_credential_in_another_secret_is_a_right_that_is_remembered(stage: PullStage) -> None:
    stage.cluster.add("a", "ann")
    stage.only("ann")
    await stage.pull(pod("a"))
    stage.cluster.add("copy", "ann")
    assert await stage.may_use(pod("copy"))
    stage.cluster.add("copy", "changed")
    assert await stage.may_use(pod("copy")), "it was remembered by its name"


async def test_the_same_secret_with_another_credential_keeps_the_right(stage: PullStage) -> None:
    stage.cluster.add("a", "ann")
    stage.only("ann")
    await stage.pull(pod("a"))
    stage.cluster.add("a", "new")
    assert await stage.may_use(pod("a"))
    stage.cluster.add("a", "newer", uid="made-again")
    assert not await stage.may_use(pod("a"))


async def test_the_registry_decides_where_a_right_is_not_known(stage: PullStage) -> None:
    stage.cluster.add_users("a", "b")
    stage.only("a", "b")
    await stage.pull(pod("a"))
    assert not await stage.may_use(pod("b"))
    await stage.pull(pod("b"))
    assert await stage.may_use(pod("b"))
    assert await stage.may_use(pod("a"))
    names = [
        one["name"] for one in stage.files("pulled")[0]["credentialMapping"][f"{REGISTRY}/app"]["kubernetesSecrets"]
    ]
    assert names == ["a", "b"]


async def test_a_right_to_one_name_of_an_image_is_none_to_another(stage: PullStage) -> None:
    stage.runtime.images["other.example/app:1"] = stage.runtime.add_image(IMAGE)
    await stage.pull(pod())
    assert await stage.may_use(pod())
    assert not await stage.may_use(pod(), "other.example/app:1")


@pytest.mark.parametrize(
    ("policy", "preloaded", "pulled"),
    [
        ("", True, True),
        ("NeverVerify", True, True),
        ("NeverVerifyPreloadedImages", True, False),
        ("NeverVerifyAllowlistedImages", False, False),
        ("AlwaysVerify", False, False),
    ],
)
async def test_each_policy(tmp_path: Path, policy: str, preloaded: bool, pulled: bool) -> None:
    """Whether a pod without a secret may use what was here before, and what another pod has pulled with one."""
    stage = PullStage(tmp_path, image_verification_policy=policy)
    stage.cluster.add("a", "ann")
    stage.runtime.add_image("r.example/before:1")
    assert await stage.may_use(pod(), "r.example/before:1") is preloaded
    await stage.pull(pod("a"))
    assert await stage.may_use(pod()) is pulled
    assert len(stage.files("pulled")) == (1 if policy else 0)


async def test_images_on_the_list_need_no_right(tmp_path: Path) -> None:
    policy = {"image_verification_policy": "NeverVerifyAllowlistedImages", "preloaded_images": ("r.example/free/*",)}
    stage = PullStage(tmp_path, **policy)
    stage.runtime.add_image("r.example/free/one:1")
    stage.runtime.add_image("r.example/one:1")
    assert await stage.may_use(pod(), "r.example/free/one:1")
    assert not await stage.may_use(pod(), "r.example/one:1")


# Notes on disk


async def test_the_notes_are_those_of_the_kubelet(stage: PullStage, tmp_path: Path) -> None:
    hung = stage.runtime.hang("PullImage")
    task = asyncio.create_task(stage.pull(pod()))
    await hung.reached.wait()
    assert [note["image"] for note in stage.files("pulling")] == [IMAGE]
    assert stage.files("pulled") == []
    hung.release.set()
    await task
    assert stage.files("pulling") == []
    (record,) = stage.files("pulled")
    assert (record["imageRef"], record["lastUpdatedTime"][-1]) == (stage.runtime.images[IMAGE].id, "Z")
    paths = [path for path in (tmp_path / "root_dir/image_manager").rglob("*") if path.is_file()]
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o600]


async def test_two_pulls_of_one_image_share_a_note(tmp_path: Path) -> None:
    stage = PullStage(tmp_path, serialize_image_pulls=False)
    first, second = stage.runtime.hang("PullImage"), stage.runtime.hang("PullImage")
    tasks = [asyncio.create_task(stage.pull(pod(uid=uid))) for uid in ("p1", "p2")]
    await asyncio.gather(first.reached.wait(), second.reached.wait())
    first.release.set()
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert len(stage.files("pulling")) == 1
    second.release.set()
    await asyncio.gather(*tasks)
    assert stage.files("pulling") == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "notes"), [("NotFound", 0), ("Unknown", 0), ("Unavailable", 1), ("DeadlineExceeded", 1)]
)
async def test_the_intent_of_a_pull_without_an_answer_stays(stage: PullStage, code: str, notes: int) -> None:
    """The runtime may have the image: a pod without the secret must not get it as one that was here before."""
    stage.cluster.add("a", "ann")
    stage.runtime.fail("PullImage", code, "went away", after=True)
    with pytest.raises(RuntimeCallError):
        await stage.pull(pod("a"))
    assert len(stage.files("pulling")) == notes
    if notes:
        assert not await stage.may_use(pod())
        stage.live()
        assert not await stage.may_use(pod())
        assert (len(stage.files("pulling")), len(stage.files("pulled"))) == (0, 1)
        await stage.pull(pod("a"))
        assert await stage.may_use(pod("a"))


async def test_a_pull_that_is_given_up_stays_noted_only_where_it_was_begun(stage: PullStage) -> None:
    hung = stage.runtime.hang("PullImage")
    begun = asyncio.create_task(stage.pull(pod()))
    await hung.reached.wait()
    queued = asyncio.create_task(stage.pull(pod(), f"{REGISTRY}/later:1"))
    while len(stage.files("pulling")) < 2:
        await asyncio.sleep(0.001)
    for task in (queued, begun):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [note["image"] for note in stage.files("pulling")] == [IMAGE]


@pytest.mark.parametrize("name", [IMAGE, "short:1"])
async def test_a_kill_between_note_and_record_makes_it_an_image_with_unknown_rights(
    stage: PullStage, name: str
) -> None:
    full = name if name == IMAGE else "docker.io/library/short:1"
    hung = stage.runtime.hang("PullImage", after=True)
    stage.runtime.pullable.add(full)
    task = asyncio.create_task(stage.pull(pod(), full))
    await hung.reached.wait()
    note = next((stage.directory / "root_dir/image_manager/pulling").iterdir())
    kept = note.read_text().replace(full, name)  # as a pod may have named it
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    note.unlink()
    (note.parent / file_name(name)).write_text(kept)
    stage.live()
    assert not await stage.may_use(pod(), full)
    (record,) = stage.files("pulled")
    assert record["imageRef"] == stage.runtime.images[full].id
    assert "credentialMapping" not in record
    assert stage.files("pulling") == []


async def test_a_note_without_an_image_is_kept_and_what_a_kill_half_wrote_goes(stage: PullStage) -> None:
    await stage.pulls.access.begin(IMAGE)
    pulling = stage.directory / "root_dir/image_manager/pulling"
    (pulling / ".sha256-x.12.tmp").write_text("{")
    stage.live()
    await stage.pulls.access.recover()
    assert [path.name[:7] for path in pulling.iterdir()] == ["sha256-"]


async def test_notes_are_made_records_once_the_runtime_answers(stage: PullStage) -> None:
    await stage.pulls.access.begin(IMAGE)
    stage.runtime.add_image(IMAGE)
    stage.live()
    stage.runtime.fail("ListImages")
    with pytest.raises(RuntimeCallError):
        await stage.may_use(pod())
    assert not await stage.may_use(pod())
    assert len(stage.files("pulled")) == 1


async def test_nothing_is_pulled_that_cannot_be_noted(stage: PullStage) -> None:
    (stage.directory / "root_dir").mkdir()
    (stage.directory / "root_dir/image_manager").write_text("in the way")
    with pytest.raises(ImageCallError) as error:
        await stage.pull(pod())
    assert error.value.reason.startswith("failed to record image pull intent: ")
    assert stage.tried() == []


async def test_a_pull_that_cannot_be_recorded_stays_noted(stage: PullStage, caplog: pytest.LogCaptureFixture) -> None:
    (stage.directory / "root_dir/image_manager").mkdir(parents=True)
    (stage.directory / "root_dir/image_manager/pulled").write_text("in the way")
    assert (await stage.pull(pod())).image is not None
    assert len(stage.files("pulling")) == 1
    assert "cannot be recorded" in caplog.text


async def test_an_unreadable_record_counts_as_none_and_is_reported_once(
    stage: PullStage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.pull(pod())
    (path,) = (stage.directory / "root_dir/image_manager/pulled").iterdir()
    path.write_bytes(b"\x00\xff")
    for _ in range(3):
        assert await stage.may_use(pod()), "it counts as an image that was here before"
    assert [record.getMessage().count(str(path)) for record in caplog.records] == [1]
    await stage.pull(pod())
    assert stage.files("pulled")[0]["credentialMapping"]


async def test_records_of_images_that_are_gone_are_dropped(stage: PullStage) -> None:
    stage.runtime.pullable.add(GONE)
    await stage.pull(pod())
    await stage.pull(pod(), GONE)
    remove_image(stage, GONE)
    await stage.pulls.access.prune()
    assert [record["imageRef"] for record in stage.files("pulled")] == [stage.runtime.images[IMAGE].id]


async def test_an_image_pulled_again_while_records_are_dropped_keeps_or_gets_its_record(stage: PullStage) -> None:
    await stage.pull(pod())
    images = dict(stage.runtime.images)
    remove_image(stage, IMAGE)
    listed = stage.runtime.list_images

    async def pulled_meanwhile() -> tuple[ImageStatus, ...]:
        found = await listed()
        stage.runtime.images |= images
        return found

    stage.runtime.list_images = pulled_meanwhile  # type: ignore[method-assign]
    await stage.pulls.access.prune()
    assert len(stage.files("pulled")) == 1


async def test_no_record_is_dropped_while_the_runtime_does_not_answer(stage: PullStage) -> None:
    await stage.pull(pod())
    remove_image(stage, IMAGE)
    for call in ("ListImages", "ImageStatus"):
        stage.runtime.fail(call)
        with pytest.raises(RuntimeCallError):
            await stage.pulls.access.prune()
        assert len(stage.files("pulled")) == 1
    await stage.pulls.access.prune()
    assert stage.files("pulled") == []


async def test_podsync_drops_the_records_of_vanished_images_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.podsync.controllers.housekeeping.PRUNE_SECONDS", 0.01)
    records = tmp_path / "root/image_manager/pulled"
    async with on_stage(tmp_path, FakeRuntime(pullable=[IMAGE]), cgroups_per_qos=False) as node:
        container = {"name": "c", "image": IMAGE}
        spec = {"containers": [container], "restartPolicy": "Always", "enableServiceLinks": True}
        node.want({"metadata": {"name": "web", "namespace": "ns", "uid": "u1"}, "spec": spec})
        await node.until(lambda: records.is_dir() and list(records.iterdir()))
        node.runtime.images.clear()
        await node.until(lambda: not list(records.iterdir()))


def remove_image(stage: PullStage, image: str) -> None:
    """As an administrator does, beside the agent."""
    stage.runtime.images.pop(stage.runtime.images.pop(image).id, None)


async def test_a_look_at_what_was_just_pulled_may_fail(stage: PullStage) -> None:
    stage.runtime.fail("ImageStatus")
    with pytest.raises(RuntimeCallError):
        await stage.pull(pod())
    assert (len(stage.files("pulling")), len(stage.files("pulled"))) == (0, 1)


async def test_no_secret_is_in_a_log_a_record_or_an_error(stage: PullStage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    stage.cluster.add("a", "ann")
    stage.only("unknown-user")
    with pytest.raises(RuntimeCallError) as error:
        await stage.pull(pod("a"))
    stage.only("ann")
    await stage.pull(pod("a"))
    found = await stage.inspect(pod("a"))
    files = b"".join(path.read_bytes() for path in stage.directory.rglob("*") if path.is_file()).decode()
    assert "ann-word" not in f"{caplog.text} {error.value!r} {found!r} {files} {await stage.cluster.secret('ns', 'a')}"


UNTAGGED = f"{REGISTRY}/plain"


async def test_the_runtime_gets_a_tag_and_the_intent_the_name_of_the_spec(stage: PullStage) -> None:
    stage.runtime.fail("PullImage", "Unavailable", "went away")
    with pytest.raises(RuntimeCallError):
        await stage.pull(pod(), UNTAGGED)
    assert [intent["image"] for intent in stage.files("pulling")] == [UNTAGGED]
    stage.runtime.pullable.add(f"{UNTAGGED}:latest")
    await stage.pull(pod(), UNTAGGED)
    asked = {
        request["image"]["image"] for call in ("PullImage", "ImageStatus") for request in stage.runtime.requests(call)
    }
    assert asked == {f"{UNTAGGED}:latest"}
    assert stage.files("pulling") == []


async def test_an_intent_counts_under_the_name_of_the_spec(stage: PullStage) -> None:
    stage.pulls.access._recovered = True
    stage.runtime.add_image(f"{UNTAGGED}:latest")
    assert await stage.may_use(pod(), UNTAGGED)
    stage.pulls.access._files.write_intent(UNTAGGED)
    assert not await stage.may_use(pod(), UNTAGGED)


async def test_an_image_that_was_being_pulled_without_a_tag_is_found_after_a_restart(stage: PullStage) -> None:
    stage.pulls.access._files.write_intent(UNTAGGED)
    stage.runtime.add_image(f"{UNTAGGED}:latest")
    stage.live()
    assert not await stage.may_use(pod(), UNTAGGED)
    assert stage.files("pulling") == []
    [record] = stage.files("pulled")
    assert record["imageRef"] == stage.runtime.images[f"{UNTAGGED}:latest"].id


async def test_a_look_that_is_given_up_ends_what_it_records_first(
    stage: PullStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.pulls.access.begin(IMAGE)
    stage.runtime.add_image(IMAGE)
    stage.live()
    entered, released = threading.Event(), threading.Event()
    write = ImageRecordFiles.write_pulled

    def slow(files: ImageRecordFiles, record: PulledRecord) -> None:
        entered.set()
        assert released.wait(5)
        write(files, record)

    monkeypatch.setattr(ImageRecordFiles, "write_pulled", slow)
    looking = asyncio.create_task(stage.may_use(pod()))
    await asyncio.to_thread(entered.wait, 5)
    looking.cancel()
    await asyncio.sleep(0)
    released.set()
    await asyncio.wait({looking})
    assert looking.cancelled()
    assert len(stage.files("pulled")) == 1 and stage.files("pulling") == []
