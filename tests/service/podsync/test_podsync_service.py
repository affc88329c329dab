"""podsync as its neighbours see it: streams in, runtime calls and streams out, across its own deaths."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bus.messages.pleg import ProbeResults
from bus.messages.podsync import PodState
from bus.messages.volume import MountedVolumes
from services.podsync.adapters.calls.call_slots import CallSlots
from services.podsync.core.pod.instructions import RunPodSandbox
from shared.cri.interface import Message
from shared.files.checkpoint import Checkpoint, RecordLocation
from shared.model.frozen_copy import replace
from shared.model.probes import ProbeResult
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


async def the_container(stage: Stage, uid: str) -> str:
    seen = await stage.runtime.observe(uid)
    (container,) = [c for c in seen[uid].containers if c.state is ContainerState.RUNNING]
    return container.id


async def test_a_wanted_pod_runs_and_a_dropped_one_goes(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = await stage.run_pod(a_pod())
        assert stage.admitted.state[uid].state is PodState.SYNC
        assert (tmp_path / "root/pods" / uid / "etc-hosts").exists()
        stage.desired.delete(uid)
        await stage.until(lambda: stage.admitted.state[uid].state is PodState.FINISHED)
        await stage.until(lambda: "RemoveContainer" in stage.runtime.methods())
        assert stage.runtime.methods()[-3:] == ["StopContainer", "StopPodSandbox", "RemoveContainer"]


@pytest.mark.long
async def test_a_second_deletion_while_the_first_stop_is_saved_runs_the_pre_stop_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, released = threading.Event(), threading.Event()
    save_all = Checkpoint.save_all

    def slow(checkpoint: Checkpoint, records: dict[str, Any]) -> dict[str, RecordLocation]:
        entered.set()
        assert released.wait(10)
        return save_all(checkpoint, records)

    async with on_stage(tmp_path) as stage:
        pod = a_pod(terminationGracePeriodSeconds=30)
        pod["spec"]["containers"][0]["lifecycle"] = {"preStop": {"exec": {"command": ["flush"]}}}
        await stage.run_pod(pod, source="api")
        monkeypatch.setattr(Checkpoint, "save_all", slow)
        for grace in (30, 4):
            given = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
            stage.want(pod | {"metadata": pod["metadata"] | given}, source="api")
            await stage.until(entered.is_set)
            await stage.network.settle()
        released.set()
        await stage.until(lambda: "StopContainer" in stage.runtime.methods())
        assert [request["cmd"] for request in stage.runtime.requests("ExecSync")] == [["flush"]]


async def test_an_exit_seen_by_pleg_restarts_the_container_at_once(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = await stage.run_pod(a_pod())
        first = await the_container(stage, uid)
        stage.network.clock.advance(1.0)
        stage.runtime.exit_container(first, 137)
        stage.seen.put(uid, (await stage.runtime.observe(uid))[uid])

        def shown() -> dict[str, Any]:
            return dict(stage.status(uid)["containerStatuses"][0])

        await stage.until(lambda: stage.running(uid) and shown()["restartCount"] == 1)
        last = shown()["lastState"]["terminated"]
        assert last["exitCode"] == 137 and last["containerID"].endswith(first)


@pytest.mark.long
async def test_an_exit_while_podsync_looks_at_what_it_started_is_not_overwritten_by_that_look(tmp_path: Path) -> None:
    runtime = FakeRuntime(images=["busybox:1"])
    start = runtime.hang("StartContainer")
    async with on_stage(tmp_path, runtime) as stage:
        uid = stage.want(a_pod())
        await stage.until(start.reached.is_set)
        look = runtime.hang("Observe", after=True)
        start.release.set()
        await stage.until(look.reached.is_set)
        stage.network.clock.advance(0.001)
        runtime.exit_container(await the_container(stage, uid), 137)
        seen = (await runtime.observe(uid))[uid]
        stage.network.clock.advance(0.001)
        look.release.set()
        await stage.until(lambda: stage.running(uid))
        stage.seen.put(uid, seen)  # what pleg saw in between, and sees no more of
        await stage.until(lambda: stage.status(uid)["containerStatuses"][0]["restartCount"] == 1)


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


def warnings(stage: Stage) -> list[tuple[str, str]]:
    return [(event.reason, event.message) for event in stage.events.state.values() if event.type == "Warning"]


class UnreadableSandbox(FakeRuntime):
    """A runtime that does not answer the question about the first sandbox it made."""

    async def run_pod_sandbox(self, config: Message, runtime_handler: str) -> str:
        made = await super().run_pod_sandbox(config, runtime_handler)
        if len(self.requests("RunPodSandbox")) == 1:
            self.fail("Observe", "Unknown", "no answer")
        return made


async def test_a_sandbox_that_is_made_and_cannot_be_read_has_an_event_of_its_own(tmp_path: Path) -> None:
    async with on_stage(tmp_path, UnreadableSandbox(images=["busybox:1"])) as stage:
        uid = stage.want(a_pod())
        await stage.until(lambda: warnings(stage))
        stage.network.clock.advance(15.0)
        await stage.until(lambda: stage.running(uid))
        assert warnings(stage) == [("FailedPodSandBoxStatus", "Unable to get pod sandbox status: no answer")]


async def test_pod_directories_that_cannot_be_made_have_an_event_of_their_own(tmp_path: Path) -> None:
    async with on_stage(tmp_path, FakeRuntime(images=["busybox:1"])) as stage:
        in_the_way = tmp_path / "root" / "pods" / "u1"
        in_the_way.parent.mkdir(parents=True, exist_ok=True)
        in_the_way.write_text("a file where the pod's directory should be")
        uid = stage.want(a_pod())
        await stage.until(lambda: warnings(stage))
        in_the_way.unlink()
        stage.network.clock.advance(15.0)
        await stage.until(lambda: stage.running(uid))
        [(reason, message)] = warnings(stage)
    assert (reason, message.partition(": ")[0]) == ("Failed", "error making pod data directories")
    assert str(in_the_way) in message


async def test_the_story_of_a_pod_names_causes_and_stays_after_it(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = await stage.run_pod(a_pod())
        file = tmp_path / "root/bulkhead/podsync/stories" / f"{uid}.jsonl"
        failed = ProbeResults(
            pod_uid=uid, container="c", startup=ProbeResult.SUCCESS, liveness=ProbeResult.FAILURE, failure="refused"
        )
        stage.probed.put(await the_container(stage, uid), failed)
        words = ['"seen"', "RunPodSandbox", "CreateContainer", '"done"', "the pod is desired (file)"]
        words += ["startup", "refused", "KillContainer"]
        await stage.until(lambda: file.exists() and all(word in file.read_text() for word in words))


async def test_a_start_asks_the_runtime_and_the_disk_no_more_than_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves: list[str] = []
    save = Checkpoint.save

    def counted(self: Checkpoint, key: str, data: dict[str, Any]) -> RecordLocation:
        saves.append(key)
        return save(self, key, data)

    monkeypatch.setattr(Checkpoint, "save", counted)
    async with on_stage(tmp_path) as stage:
        uid = await stage.run_pod(a_pod())
        # The images are listed once for the node, from which their age counts.
        asked = [call.method for call in stage.runtime.calls if call.method != "ListImages"]
        assert asked == ["RunPodSandbox", "Observe", "ImageStatus", "CreateContainer", "StartContainer", "Observe"]
        await stage.until(lambda: saves.count(uid) > 1)
        assert saves.count(uid) <= 3, (
            "what only we know before the first call; the rest after the last or half a second"
        )


@pytest.mark.long
async def test_a_stop_asks_the_runtime_no_more_than_it_must(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        uid = await stage.run_pod(a_pod())
        stage.runtime.calls.clear()
        stage.desired.delete(uid)
        file = tmp_path / "root/bulkhead/podsync/stories" / f"{uid}.jsonl"
        await stage.until(lambda: file.exists() and "garbage collection" in file.read_text())
        asked = [call.method for call in stage.runtime.calls]
        assert asked == ["StopContainer", "StopPodSandbox", "Observe", "RemoveContainer"]


@pytest.mark.long
async def test_a_pod_that_is_still_being_made_is_shown_after_half_a_second(tmp_path: Path) -> None:
    runtime = FakeRuntime(images=["busybox:1"])
    async with on_stage(tmp_path, runtime) as stage:
        hang = runtime.hang("StartContainer")
        uid = stage.want(a_pod())
        await stage.until(hang.reached.is_set)
        await stage.until(lambda: "podIP" in stage.status(uid))
        assert "waiting" in stage.status(uid)["containerStatuses"][0]["state"]
        hang.release.set()
        await stage.until(lambda: stage.running(uid))


@pytest.mark.long
async def test_a_deleted_pod_that_takes_long_to_stop_is_shown_with_what_has_changed_until_then(tmp_path: Path) -> None:
    runtime = FakeRuntime(images=["busybox:1"])
    async with on_stage(tmp_path, runtime) as stage:
        pod = a_pod()
        uid = await stage.run_pod(pod, "api")
        hang = runtime.hang("StopContainer")
        deleted = {**pod["metadata"], "generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z"}
        stage.want({**pod, "metadata": deleted}, "api")
        await stage.until(hang.reached.is_set)
        await stage.until(lambda: stage.status(uid).get("observedGeneration") == 2)
        assert stage.status(uid)["phase"] == "Running"
        hang.release.set()
        await stage.until(lambda: stage.status(uid)["phase"] == "Failed")


async def test_an_unexpected_exception_of_a_call_costs_one_pod_a_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr("services.podsync.adapters.calls.building.container_config", broken)
    async with on_stage(tmp_path) as stage:
        uid = stage.want(a_pod())
        await stage.until(lambda: "internal error: KeyError" in str(stage.status(uid)))
        monkeypatch.undo()
        await stage.run_pod({**a_pod("u2"), "metadata": {"name": "other", "namespace": "default", "uid": "u2"}})


def named(uid: str, **spec: Any) -> dict[str, Any]:
    pod = a_pod(uid, **spec)
    return {**pod, "metadata": {**pod["metadata"], "name": f"{uid}-node1"}}


def _asks_for_a_sandbox(stage: Stage, uid: str) -> Callable[[], bool]:
    def asks() -> bool:
        tracked = stage.podsync.core.tracked.get(uid)
        return tracked is not None and isinstance(tracked.call, RunPodSandbox)

    return asks


@pytest.mark.long
async def test_what_the_network_may_wait_for_does_not_wait_for_pods_whose_network_hangs(tmp_path: Path) -> None:
    runtime = FakeRuntime(images=["busybox:1"])
    hung = runtime.hang("RunPodSandbox")
    async with on_stage(tmp_path, runtime) as stage:
        stage.podsync.calls.slots = CallSlots(turns=1)
        stage.want(named("u1"), "api")
        await stage.until(hung.reached.is_set)
        for pod, source in ((named("u2"), "api"), (named("u3", hostNetwork=True), "api"), (named("u4"), "file")):
            await stage.until(_asks_for_a_sandbox(stage, stage.want(pod, source)))
        runtime.clear_faults()
        await stage.until(lambda: all(stage.running(uid) for uid in ("u1", "u2", "u3", "u4")))
        begun = [request["config"]["metadata"]["uid"] for request in runtime.requests("RunPodSandbox")]
        assert begun == ["u1", "u3", "u4", "u2"]


async def test_what_is_to_end_while_it_waits_for_its_turn_is_not_begun(tmp_path: Path) -> None:
    runtime = FakeRuntime(images=["busybox:1"])
    hung = runtime.hang("RunPodSandbox")
    async with on_stage(tmp_path, runtime) as stage:
        stage.podsync.calls.slots = CallSlots(turns=1)
        first = stage.want(a_pod("u1"))
        await stage.until(hung.reached.is_set)
        second = stage.want(named("u2"))
        await stage.until(_asks_for_a_sandbox(stage, second))
        await stage.until(lambda: second in stage.admitted.state)
        stage.desired.delete(second)
        await stage.until(lambda: getattr(stage.admitted.state.get(second), "state", None) is not PodState.SYNC)
        runtime.clear_faults()
        await stage.until(lambda: stage.running(first))
        await stage.until(lambda: second not in stage.admitted.state)
        begun = [request["config"]["metadata"]["uid"] for request in runtime.requests("RunPodSandbox")]
        assert begun == [first]


async def test_news_of_a_pod_that_is_gone_is_not_remembered(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        written = stage.podsync.stories._story_lines._written
        uid = await stage.run_pod(a_pod())
        stage.mounted.put("gone", MountedVolumes(uid="gone", volumes={}))
        stage.mounted.delete("gone")
        await stage.network.settle()
        assert set(written) == set(stage.podsync.core.tracked) == {uid}


async def test_a_pod_that_terminates_counts_for_the_qos_cgroups_until_its_containers_have_ended(tmp_path: Path) -> None:
    runtime = FakeRuntime(images=["busybox:1"])
    async with on_stage(tmp_path, runtime) as stage:
        active_pods = stage.podsync.core.active_pods
        pod = a_pod()
        uid = await stage.run_pod(pod, "api")
        hung = runtime.hang("StopContainer")
        deleted = pod["metadata"] | {"deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5}
        stage.want(pod | {"metadata": deleted}, "api")
        await stage.until(hung.reached.is_set)
        assert [active["metadata"]["uid"] for active in active_pods()] == [uid]
        runtime.clear_faults()
        await stage.until(lambda: stage.admitted.state[uid].state is PodState.FINISHED)
        assert active_pods() == []


@pytest.mark.long
async def test_a_rejected_static_pod_is_admitted_or_rejected_again_after_a_start_of_supervisord(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sysctls = [{"name": "kernel.msgmax", "value": "65536"}]
    monkeypatch.setenv("SUPERVISOR_ENABLED", "1")
    monkeypatch.setenv("BULKHEAD_SUPERVISORD", "boot/1/1")
    async with on_stage(tmp_path) as stage:
        uid = stage.want(a_pod(securityContext={"sysctls": sysctls}))
        await stage.until(lambda: stage.status(uid).get("reason") == "SysctlForbidden")
        await stage.kill()
        stage.config = replace(stage.config, allowed_unsafe_sysctls=("kernel.msg*",))
        await stage.start()
        await stage.until(lambda: stage.statuses.complete)
        assert stage.status(uid)["phase"] == "Failed"  # podsync alone was started again
        await stage.kill()
        monkeypatch.setenv("BULKHEAD_SUPERVISORD", "boot/2/2")
        await stage.start()
        await stage.until(lambda: stage.running(uid))


@pytest.mark.long
@pytest.mark.parametrize("gate", [True, False])
async def test_default_sysctls_are_given_behind_their_feature_gate(tmp_path: Path, gate: bool) -> None:
    """They need no allow list: the pod did not ask for them (pods.md 3.4)."""
    gates = {"DefaultPodSysctls": gate}
    async with on_stage(tmp_path, default_pod_sysctls={"kernel.msgmax": "65536"}, feature_gates=gates) as stage:
        await stage.run_pod(a_pod())
        [request] = stage.runtime.requests("RunPodSandbox")
        assert request["config"]["linux"].get("sysctls", {}) == ({"kernel.msgmax": "65536"} if gate else {})
