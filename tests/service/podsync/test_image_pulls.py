"""Image pulls as podsync does them: credentials in turn, turns, notes on disk, and who may use what is here."""

import asyncio
import json
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from services.podsync.adapters.images.image_pulls import ImageCallError
from services.podsync.core.cri.environment import ReferencedObject
from shared.cri.interface import RuntimeCallError
from tests.fakes.memory_bus import ManualClock
from tests.service.podsync.registry_stage import IMAGE, REFUSED, REGISTRY, PullStage, pod, stage

__all__ = ["stage"]

MISSING = "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed."


# Credentials


async def test_without_credentials_one_anonymous_pull_is_made(stage: PullStage) -> None:
    pulled = await stage.pull(pod())
    assert pulled.image == stage.runtime.images[IMAGE]
    request = stage.runtime.requests("PullImage")[0]
    assert request == {"image": {"image": IMAGE}, "sandbox_config": {"hostname": "h"}}


async def test_the_request_has_the_pods_annotations_and_the_credential(stage: PullStage) -> None:
    stage.cluster.add("a", "ann")
    await stage.pull(pod("a", annotations={"x": "y"}))
    request = stage.runtime.requests("PullImage")[0]
    assert request["image"] == {"image": IMAGE, "annotations": {"x": "y"}}
    assert request["auth"] == {"username": "ann", "password": "ann-word"}


async def test_credentials_are_tried_in_the_pods_order_until_one_works(stage: PullStage) -> None:
    stage.cluster.add_users("a", "b", "c")
    stage.only("b", "c")
    await stage.pull(pod("a", "b", "c"))
    assert (stage.runtime.calls_refused, stage.tried()) == (["a"], ["b"])


async def test_the_error_lists_the_answer_to_each_credential_and_no_pull_is_anonymous(stage: PullStage) -> None:
    stage.cluster.add_users("a", "b")
    stage.only()
    with pytest.raises(RuntimeCallError) as error:
        await stage.pull(pod("a", "b"))
    assert str(error.value) == f"[{REFUSED} of a, {REFUSED} of b]"
    assert stage.runtime.calls_refused == ["a", "b"]


async def test_an_intent_stays_where_one_of_the_answers_is_missing(tmp_path: Path, stage: PullStage) -> None:
    """The runtime may have the image all the same, and no pod may use it without a record."""
    stage.cluster.add_users("a", "b")
    stage.only("b")
    stage.runtime.fail("PullImage", "Unavailable", "the connection is closed", times=1)
    with pytest.raises(RuntimeCallError):
        await stage.pull(pod("a", "b"))
    assert (stage.runtime.calls_refused, len(stage.files("pulling"))) == (["a"], 1)


async def test_a_repeated_error_is_reported_once(stage: PullStage) -> None:
    stage.cluster.add_users("a", "b")
    stage.runtime.fail("PullImage", "NotFound", "no such image", times=2)
    with pytest.raises(RuntimeCallError) as error:
        await stage.pull(pod("a", "b"))
    assert str(error.value) == "rpc error: code = NotFound desc = no such image"


async def test_secrets_that_do_not_match_are_not_tried(stage: PullStage) -> None:
    stage.cluster.add("a", "ann", place="other.example")
    stage.cluster.put("b", "Opaque", ".dockerconfigjson", "not even json")
    stage.cluster.put("c", "kubernetes.io/dockercfg", ".dockercfg", json.dumps({REGISTRY: {"auth": "Y2g6Yw=="}}))
    await stage.pull(pod("a", "b", "c"))
    assert stage.tried() == ["ch"]


async def test_the_nodes_own_credentials_come_after_the_pods(stage: PullStage, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"auths": {REGISTRY: {"username": "node", "password": "x"}}}))
    stage.cluster.add("a", "ann")
    stage.only("node")
    await stage.pull(pod("a"))
    assert (stage.runtime.calls_refused, stage.tried()) == (["ann"], ["node"])
    assert stage.files("pulled")[0]["credentialMapping"] == {f"{REGISTRY}/app": {"nodePodsAccessible": True}}


@pytest.mark.parametrize(
    ("policy", "call", "names_of_missing"),
    [
        ("IfNotPresent", "inspect", ["a, b"]),
        ("IfNotPresent", "pull", []),
        ("Always", "pull", ["a, b"]),
        ("Never", "inspect", ["a, b"]),
    ],
)
async def test_missing_secrets_are_reported_once_and_the_pull_goes_on(
    stage: PullStage, policy: str, call: str, names_of_missing: list[str]
) -> None:
    stage.cluster.add("good", "ann")
    found: Any = await getattr(stage, call)(pod("a", "good", "b"), policy=policy)
    assert [text for _, text in found.warnings] == [MISSING.format(names) for names in names_of_missing]
    assert {reason for reason, _ in found.warnings} <= {"FailedToRetrieveImagePullSecret"}


async def test_missing_secrets_are_reported_with_a_pull_that_fails(stage: PullStage) -> None:
    stage.only()
    with pytest.raises(ImageCallError) as error:
        await stage.pull(pod("a"), policy="Always")
    assert error.value.warnings == (("FailedToRetrieveImagePullSecret", MISSING.format("a")),)


@pytest.mark.parametrize("content", ["{hush", '{"auths": {"r.example": {"auth": "hush"}}}', '["hush"]'])
async def test_a_secret_that_cannot_be_read_is_the_reason_and_is_not_shown(stage: PullStage, content: str) -> None:
    stage.cluster.put("bad", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", content)
    stage.cluster.add("good", "ann")
    for call in (stage.inspect, stage.pull):
        with pytest.raises(ImageCallError) as error:
            await call(pod("good", "bad"))
        assert error.value.reason == str(error.value)
        assert error.value.reason.startswith("pull secret ns/bad: .dockerconfigjson is of no use: ")
        assert "hush" not in error.value.reason
    assert stage.tried() == []


async def test_a_secret_that_cannot_be_read_does_not_matter_for_what_is_never_pulled(stage: PullStage) -> None:
    stage.cluster.put("bad", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", "{")
    assert (await stage.inspect(pod("bad"), policy="Never")).image is None


# Turns


async def test_one_pull_at_a_time_in_the_order_of_asking(stage: PullStage) -> None:
    stage.runtime.pullable |= {f"{REGISTRY}/{n}:1" for n in range(3)}
    hung = stage.runtime.hang("PullImage")
    pulls = [asyncio.create_task(stage.pull(pod(), f"{REGISTRY}/{n}:1")) for n in range(3)]
    await hung.reached.wait()
    await asyncio.sleep(0)
    assert len(stage.runtime.requests("PullImage")) == 1
    hung.release.set()
    await asyncio.gather(*pulls)
    assert len(stage.runtime.requests("PullImage")) == 3
    assert pulls[2].result().waited >= pulls[2].result().took


@pytest.mark.long
@pytest.mark.parametrize(("most", "at_once"), [(2, 2), (3, 3), (0, 4)])
async def test_as_many_pulls_as_allowed_go_side_by_side(tmp_path: Path, most: int, at_once: int) -> None:
    stage = PullStage(tmp_path, serialize_image_pulls=False, max_parallel_image_pulls=most)
    stage.runtime.pullable |= {f"{REGISTRY}/{n}:1" for n in range(4)}
    faults = [stage.runtime.hang("PullImage") for _ in range(4)]
    pulls = [asyncio.create_task(stage.pull(pod(), f"{REGISTRY}/{n}:1")) for n in range(4)]
    await asyncio.gather(*(fault.reached.wait() for fault in faults[:at_once]))
    for _ in range(50):
        await asyncio.sleep(0.001)
    assert [fault.reached.is_set() for fault in faults].count(True) == at_once
    for fault in faults:
        fault.release.set()
    await asyncio.gather(*pulls)


async def test_a_pull_counts_once_for_the_rate_however_many_credentials_it_tries(tmp_path: Path) -> None:
    stage = PullStage(tmp_path, ManualClock(), registry_pull_qps=1, registry_burst=2)
    stage.cluster.add_users("a", "b", "good")
    stage.only("good")
    for _ in range(2):
        await stage.pull(pod("a", "b", "good"))
    with pytest.raises(RuntimeCallError, match=r"^pull QPS exceeded$"):
        await stage.pull(pod("a", "b", "good"))
    assert (stage.tried(), stage.files("pulling")) == (["good", "good"], [])


# Who may use what is here


@pytest.mark.long
async def test_wildcards_in_a_secret_cost_milliseconds(stage: PullStage) -> None:
    image = f"{'a' * 63}.example/app:1"
    stage.runtime.pullable.add(image)
    auths = {f"{'*a' * (8 + n % 20)}b{n}.example": {"username": "u"} for n in range(999)}
    auths["*a*.example"] = {"username": "right"}
    stage.cluster.put("s", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", json.dumps({"auths": auths}))
    before = process_time()
    await stage.pull(pod("s"), image)
    assert process_time() - before < 1.0
    assert stage.tried() == ["right"]


async def test_of_many_secrets_a_few_are_held_at_a_time(stage: PullStage, monkeypatch: pytest.MonkeyPatch) -> None:
    held = most = 0
    find = stage.cluster.secret

    async def counted(space: str, name: str) -> ReferencedObject:
        nonlocal held, most
        held += 1
        most = max(most, held)
        await asyncio.sleep(0)
        held -= 1
        return await find(space, name)

    monkeypatch.setattr(stage.cluster, "secret", counted)
    names = [f"s{n}" for n in range(100)]
    for name in names:
        stage.cluster.add(name, name, place=f"{name}.example")
    stage.cluster.add("s50", "right")
    await stage.pull(pod(*names, *names))
    assert (stage.tried(), most) == (["right"], 4)


async def test_a_pod_with_very_many_pull_secrets_is_refused(stage: PullStage) -> None:
    with pytest.raises(ImageCallError, match=r"spec\.imagePullSecrets has 101 names, at most 100 are read"):
        await stage.pull(pod(*(f"s{n}" for n in range(101))))


async def test_a_look_during_the_back_off_asks_for_no_secrets_unless_the_image_came(stage: PullStage) -> None:
    looked = await stage.pulls.inspect(pod("missing"), IMAGE, "IfNotPresent", stage.cluster, backed_off=True)
    assert (looked.image, looked.warnings) == (None, ())
    stage.runtime.add_image(IMAGE)
    looked = await stage.pulls.inspect(pod("missing"), IMAGE, "IfNotPresent", stage.cluster, backed_off=True)
    assert looked.image is not None
    assert looked.warnings != ()
