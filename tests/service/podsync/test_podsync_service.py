"""podsync as its neighbours see it: streams in, runtime calls and streams out, across its own deaths."""

from pathlib import Path
from typing import Any

import pytest

from bus.messages.podsync import PodState
from shared.model.runtime import ContainerState
from tests.fakes.runtime import FakeRuntime
from tests.service.podsync.stage import Stage, on_stage


def a_pod(uid: str = "u1", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox:1", "imagePullPolicy": "IfNotPresent", "command": ["sleep", "1d"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-node1", "namespace": "default", "uid": uid},
        "spec": {
            "containers": [{**container, "terminationMessagePath": "/dev/termination-log"}],
            "restartPolicy": "Always",
            "dnsPolicy": "Default",
            "securityContext": {},
            "enableServiceLinks": True,
            "terminationGracePeriodSeconds": 5,
            **spec,
        },
    }


def running(stage: Stage, uid: str) -> bool:
    return stage.status(uid).get("phase") == "Running" and stage.status(uid)["containerStatuses"][0]["ready"]


async def the_container(stage: Stage, uid: str) -> str:
    seen = await stage.runtime.observe(uid)
    (container,) = [c for c in seen[uid].containers if c.state is ContainerState.RUNNING]
    return container.id


async def test_a_wanted_pod_runs_and_a_dropped_one_goes(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = stage.want(a_pod())
        await stage.until(lambda: running(stage, uid))
        assert stage.admitted.state[uid].state is PodState.SYNC
        assert (tmp_path / "root/pods" / uid / "etc-hosts").exists()
        stage.desired.delete(uid)
        await stage.until(lambda: stage.admitted.state[uid].state is PodState.FINISHED)
        await stage.until(lambda: "RemoveContainer" in stage.runtime.methods())
        assert stage.runtime.methods()[-3:] == ["StopContainer", "StopPodSandbox", "RemoveContainer"]


async def test_a_new_life_of_podsync_adopts_the_running_container(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = stage.want(a_pod())
        await stage.until(lambda: running(stage, uid))
        before = await the_container(stage, uid)
        version = stage.statuses.state[uid].version
        await stage.kill()
        await stage.start()
        await stage.until(lambda: stage.statuses.state[uid].version > version)
        assert await the_container(stage, uid) == before
        assert stage.runtime.methods().count("CreateContainer") == 1


async def test_a_pod_wanted_by_no_source_any_more_while_podsync_was_dead_is_ended(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = stage.want(a_pod())
        await stage.until(lambda: running(stage, uid))
        await stage.kill()
        stage.desired.delete(uid)
        await stage.network.settle()
        await stage.start()
        await stage.until(lambda: stage.admitted.state[uid].state is PodState.FINISHED)


async def test_an_exit_seen_by_pleg_restarts_the_container_at_once(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = stage.want(a_pod())
        await stage.until(lambda: running(stage, uid))
        first = await the_container(stage, uid)
        stage.network.clock.advance(1.0)
        stage.runtime.exit_container(first, 137)
        stage.seen.put(uid, (await stage.runtime.observe(uid))[uid])

        def shown() -> dict[str, Any]:
            return dict(stage.status(uid)["containerStatuses"][0])

        await stage.until(lambda: running(stage, uid) and shown()["restartCount"] == 1)
        last = shown()["lastState"]["terminated"]
        assert last["exitCode"] == 137 and last["containerID"].endswith(first)


async def test_the_runtimes_refusal_is_shown_in_status_and_event(tmp_path: Path) -> None:
    runtime = FakeRuntime(images=["busybox:1"])
    runtime.fail("CreateContainer", "InvalidArgument", "no such device")
    async with on_stage(tmp_path, runtime) as stage:
        uid = stage.want(a_pod())

        def waiting() -> str:
            statuses = stage.status(uid).get("containerStatuses") or [{}]
            return str(statuses[0].get("state", {}).get("waiting", {}).get("reason"))

        await stage.until(lambda: waiting() == "CreateContainerError")
        assert any(e.reason == "Failed" and "no such device" in e.message for e in stage.events.state.values())


async def test_the_story_of_a_pod_names_causes_and_stays_after_it(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = stage.want(a_pod())
        await stage.until(lambda: running(stage, uid))
        story = (tmp_path / "root/bulkhead/podsync/stories" / f"{uid}.jsonl").read_text()
        for word in ("PodDesired", "RunPodSandbox", "CreateContainer", "CallDone", "file wants the pod"):
            assert word in story


async def test_a_missing_cluster_dns_is_warned_of_in_an_event(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = stage.want(a_pod(dnsPolicy="ClusterFirst"))
        await stage.until(lambda: running(stage, uid))
        assert any(event.reason == "MissingClusterDNS" for event in stage.events.state.values())


async def test_a_call_that_fails_in_a_way_nobody_thought_of_costs_one_pod_a_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr("services.podsync.adapters.runtime_calls.container_config", broken)
    async with on_stage(tmp_path) as stage:
        uid = stage.want(a_pod())
        await stage.until(lambda: "internal error: KeyError" in str(stage.status(uid)))
        monkeypatch.undo()
        other = stage.want({**a_pod("u2"), "metadata": {"name": "other", "namespace": "default", "uid": "u2"}})
        await stage.until(lambda: running(stage, other))
