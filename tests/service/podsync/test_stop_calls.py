"""How one call stops containers: preStop and its bound, what is left of the grace, who waits for whom, and what is
left over when a call is given up (pods.md 8.2-8.4)."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from services.podsync.adapters.pod.pod_directories import PodDirectories
from services.podsync.core.pod.call_results import PodListed
from services.podsync.core.pod.events import CallDone, CallFailed
from services.podsync.core.pod.instructions import (
    ContainerStop,
    KillContainer,
    KillPod,
    RemoveContainers,
    RemoveSandboxes,
)
from shared.cri.interface import ExecResult, RuntimeCallError
from shared.model.objects import Object
from shared.model.runtime import ContainerState
from tests.fakes.virtual_time import on_virtual_time, virtual_clock
from tests.service.podsync.performer import UID, Performer, a_container, a_pod, ours

EXEC = {"exec": {"command": ["quit", "$(NOW)"]}}


def with_pre_stop(name: str = "c", handler: Object | None = None) -> Object:
    return a_container(name, lifecycle={"preStop": handler or EXEC})


async def running(directory: Path, *containers: Object, **spec: Any) -> Performer:
    performer = Performer(directory, a_pod(*containers, **spec), virtual_clock())
    await performer.run()
    return performer


def stop_of(performer: Performer, name: str = "c", grace: int = 30, **further: Any) -> ContainerStop:
    after = tuple(performer.ids[other] for other in further.pop("after", ()))
    fields: dict[str, Any] = {
        "container": name,
        "container_id": performer.ids[name],
        "grace_seconds": grace,
        "after": after,
    }
    return ContainerStop(**fields, **further)


def kill_one(performer: Performer, **stop: Any) -> KillContainer:
    return KillContainer(uid=UID, stop=stop_of(performer, **stop))


def kill_all(performer: Performer, *stops: ContainerStop, **further: Any) -> KillPod:
    return KillPod(uid=UID, containers=stops, sandboxes=(performer.sandbox,), **further)


@pytest.mark.parametrize(("grace", "hook", "left"), [(30, 12.7, 18), (30, 0.9, 30), (5, 4.2, 2), (3, 0.0, 3)])
def test_the_process_gets_what_the_hook_left_in_whole_seconds_and_two_at_least(
    tmp_path: Path, grace: int, hook: float, left: int
) -> None:
    @on_virtual_time
    async def run() -> None:
        performer = await running(tmp_path, with_pre_stop())
        performer.runtime.delay("ExecSync", hook)
        call = performer.begin(kill_one(performer, grace=grace, pre_stop=True))
        await performer.pass_time(hook)
        await call
        assert performer.stops() == {"c": left}
        assert performer.runtime.methods() == ["ExecSync", "StopContainer"]

    run()


@on_virtual_time
async def test_the_command_goes_to_the_runtime_as_it_stands_and_without_a_limit(tmp_path: Path) -> None:
    performer = await running(tmp_path, with_pre_stop())
    await performer.perform(kill_one(performer, pre_stop=True))
    assert performer.runtime.requests("ExecSync") == [
        {"container_id": performer.ids["c"], "cmd": ["quit", "$(NOW)"]},
    ]


@on_virtual_time
async def test_a_hook_longer_than_the_grace_is_waited_for_no_longer_and_goes_on_in_the_runtime(tmp_path: Path) -> None:
    performer = await running(tmp_path, with_pre_stop())
    hook = performer.runtime.hang("ExecSync")
    stop = performer.runtime.hang("StopContainer")
    call = performer.begin(kill_one(performer, grace=5, pre_stop=True))
    await performer.pass_time(4.9)
    assert performer.stops() == {}
    await performer.pass_time(0.2)
    assert performer.stops() == {"c": 2}
    assert [name for name in ours() if name.startswith("preStop")]  # not taken back while the process ends
    hook.release.set()
    await performer.settle()
    stop.release.set()
    await performer.settle()
    assert call.done() and not (await call).container_warnings


@on_virtual_time
async def test_a_hook_that_its_container_takes_with_it_has_failed(tmp_path: Path) -> None:
    performer = await running(tmp_path, with_pre_stop())
    performer.runtime.execute = lambda *_: ExecResult(exit_code=137)
    performer.runtime.delay("ExecSync", 5.5)
    call = performer.begin(kill_one(performer, grace=5, pre_stop=True))
    await performer.pass_time(6)
    assert (await call).container_warnings == (("FailedPreStopHook", "PreStopHook failed", "c"),)


@on_virtual_time
async def test_a_hook_that_never_ends_delays_no_stop_and_leaves_no_task(tmp_path: Path) -> None:
    performer = await running(tmp_path, with_pre_stop())
    performer.runtime.hang("ExecSync")
    call = performer.begin(kill_one(performer, grace=3, pre_stop=True))
    await performer.pass_time(4.1)
    assert isinstance(await call, CallDone)
    assert ours() == []


@pytest.mark.parametrize(
    "answer", [ExecResult(exit_code=1), RuntimeCallError("ExecSync", "Unknown", "container is not running")]
)
def test_a_failed_hook_is_reported_and_the_stop_goes_on(tmp_path: Path, answer: ExecResult | RuntimeCallError) -> None:
    def execute(*_: object) -> ExecResult:
        if isinstance(answer, RuntimeCallError):
            raise answer
        return answer

    @on_virtual_time
    async def run() -> None:
        performer = await running(tmp_path, with_pre_stop())
        performer.runtime.execute = execute
        done = await performer.perform(kill_one(performer, pre_stop=True))
        assert isinstance(done, CallDone)
        assert done.container_warnings == (("FailedPreStopHook", "PreStopHook failed", "c"),)
        assert performer.stops() == {"c": 30}

    run()


@on_virtual_time
async def test_without_a_hook_to_run_there_is_none(tmp_path: Path) -> None:
    performer = await running(tmp_path, with_pre_stop())
    await performer.perform(kill_one(performer, pre_stop=False))
    await performer.perform(kill_one(performer, pre_stop=True, grace=0))
    assert performer.runtime.methods() == ["StopContainer", "StopContainer"]


@on_virtual_time
async def test_a_container_that_is_gone_has_been_stopped(tmp_path: Path) -> None:
    performer = await running(tmp_path, a_container())
    await performer.runtime.remove_container(performer.ids["c"])
    assert isinstance(await performer.perform(kill_one(performer)), CallDone)
    performer.runtime.fail("StopContainer", "NotFound", "gone")
    performer.runtime.fail("StopPodSandbox", "NotFound", "gone")
    assert isinstance(await performer.perform(kill_all(performer, stop_of(performer))), CallDone)


# Sidecars


def a_row(*names: str) -> list[Object]:
    return [a_container(name) for name in names]


@on_virtual_time
async def test_a_sidecar_is_stopped_the_moment_those_before_it_have_ended(tmp_path: Path) -> None:
    performer = await running(tmp_path, *a_row("main", "late"), initContainers=a_row("one", "two"))
    performer.runtime.delay("StopContainer", 3.0)  # of main
    call = performer.begin(
        kill_all(
            performer,
            stop_of(performer, "main"),
            stop_of(performer, "late"),
            stop_of(performer, "one", after=("main", "late", "two")),
            stop_of(performer, "two", after=("main", "late")),
        )
    )
    await performer.settle()
    assert performer.stops() == {"main": 30, "late": 30}
    await performer.pass_time(2.9)
    assert list(performer.stops()) == ["main", "late"]
    await performer.pass_time(0.1)
    assert performer.stops() == {"main": 30, "late": 30, "two": 27, "one": 27}
    assert isinstance(await call, CallDone)


@on_virtual_time
async def test_a_sidecars_hook_runs_at_once_and_its_wait_has_what_the_hook_left(tmp_path: Path) -> None:
    performer = await running(tmp_path, a_container("main"), initContainers=[with_pre_stop("side")])
    performer.runtime.delay("ExecSync", 2.5)
    performer.runtime.delay("StopContainer", 4.5)
    stops = (stop_of(performer, "main"), stop_of(performer, "side", after=("main",), pre_stop=True))
    call = performer.begin(kill_all(performer, *stops))
    await performer.settle()
    assert performer.runtime.methods() == ["ExecSync", "StopContainer"]
    await performer.pass_time(4.5)
    await call
    assert performer.stops()["side"] == 30 - 2 - 2


@on_virtual_time
async def test_a_wait_that_lasts_as_long_as_the_grace_ends_with_it(tmp_path: Path) -> None:
    performer = await running(tmp_path, a_container("main"), initContainers=a_row("side"))
    performer.runtime.delay("StopContainer", 10.0)
    call = performer.begin(
        kill_all(performer, stop_of(performer, "main", 5), stop_of(performer, "side", 5, after=("main",)))
    )
    await performer.pass_time(5.0)
    assert performer.stops() == {"main": 5, "side": 2}
    await performer.pass_time(5.0)
    assert isinstance(await call, CallDone)


@on_virtual_time
async def test_one_that_ends_outside_of_the_call_is_looked_at(tmp_path: Path) -> None:
    performer = await running(tmp_path, a_container("main"), initContainers=a_row("side"))
    call = performer.begin(kill_all(performer, stop_of(performer, "side", after=("main",))))
    await performer.pass_time(2.0)
    assert performer.stops() == {}
    performer.runtime.exit_container(performer.ids["main"])
    await performer.pass_time(0.3)
    assert performer.stops() == {"side": 28}
    assert isinstance(await call, CallDone)


@on_virtual_time
async def test_one_whose_stop_failed_is_looked_at_as_well(tmp_path: Path) -> None:
    performer = await running(tmp_path, a_container("main"), initContainers=a_row("side"))
    performer.runtime.fail("StopContainer", "Unknown", "no")
    stops = (stop_of(performer, "main", 2), stop_of(performer, "side", 2, after=("main",)))
    call = performer.begin(kill_all(performer, *stops))
    await performer.pass_time(1.0)
    assert list(performer.stops()) == ["main"]
    performer.runtime.exit_container(performer.ids["main"])
    await performer.pass_time(0.3)
    failed = await call
    assert isinstance(failed, CallFailed) and failed.text == "no"
    assert (await performer.container("side")).state is ContainerState.EXITED


# What fails and what is given up


@on_virtual_time
async def test_every_removal_is_tried_before_the_first_error_is_reported(tmp_path: Path) -> None:
    performer = await running(tmp_path, *a_row("a", "b", "c"))
    performer.runtime.fail("StopContainer", "Unknown", "first")
    performer.runtime.fail("StopPodSandbox", "Unknown", "second")
    stops = [stop_of(performer, name, 2) for name in ("a", "b", "c")]
    failed = await performer.perform(kill_all(performer, *stops))
    assert isinstance(failed, CallFailed) and failed.text == "first"
    assert performer.runtime.methods() == ["StopContainer"] * 3 + ["StopPodSandbox"]


@on_virtual_time
async def test_a_sandbox_stays_while_a_container_that_was_not_stopped_has_time_left(tmp_path: Path) -> None:
    performer = await running(tmp_path, *a_row("a", "b"))
    performer.runtime.fail("StopContainer", "Unknown", "no")
    stops = stop_of(performer, "a", 9), stop_of(performer, "b", 2)  # b has no time left, a has
    failed = await performer.perform(kill_all(performer, *stops))
    assert isinstance(failed, CallFailed)
    assert "StopPodSandbox" not in performer.runtime.methods()


@on_virtual_time
async def test_a_failure_has_the_hooks_that_failed_too(tmp_path: Path) -> None:
    performer = await running(tmp_path, with_pre_stop())
    performer.runtime.execute = lambda *_: ExecResult(exit_code=1)
    performer.runtime.fail("StopContainer", "Unknown", "no")
    failed = await performer.perform(kill_one(performer, pre_stop=True))
    assert isinstance(failed, CallFailed) and failed.container_warnings


@pytest.mark.parametrize("waits", ["in its hook", "for others", "for the runtime"])
def test_a_call_given_up_leaves_nothing_but_its_hook_running_and_another_one_ends_the_pod(
    tmp_path: Path, waits: str
) -> None:
    @on_virtual_time
    async def run() -> None:
        performer = await running(tmp_path, a_container("main"), initContainers=[with_pre_stop("side")])
        method = {"in its hook": "ExecSync", "for others": "StopContainer", "for the runtime": "StopContainer"}[waits]
        performer.runtime.hang(method)
        main = stop_of(performer, "main")
        side = stop_of(performer, "side", after=("main",), pre_stop=waits == "in its hook")
        call = performer.begin(kill_all(performer, main, side, grace_seconds=30))
        await performer.pass_time(1.0)
        call.cancel()
        await asyncio.wait({call})
        assert call.cancelled()
        assert ours() == (["preStop side"] if waits == "in its hook" else [])
        await performer.calls.close()
        assert ours() == []
        performer.runtime.clear_faults()
        performer.runtime.calls.clear()
        again = kill_all(performer, stop_of(performer, "main", 2), stop_of(performer, "side", 2, after=("main",)))
        assert isinstance(await performer.perform(again), CallDone)
        assert all(c.state is ContainerState.EXITED for c in (await performer.seen()).containers)

    run()


@on_virtual_time
async def test_a_call_given_up_right_after_its_begin_has_begun_every_hook(tmp_path: Path) -> None:
    performer = await running(tmp_path, with_pre_stop("one"), with_pre_stop("two"))
    call = performer.begin(kill_all(performer, *(stop_of(performer, name, pre_stop=True) for name in performer.ids)))
    await asyncio.sleep(0)
    call.cancel()
    await performer.settle()
    assert performer.runtime.methods() == ["ExecSync", "ExecSync"]


@on_virtual_time
async def test_a_stop_after_one_given_up_waits_for_the_hook_that_runs(tmp_path: Path) -> None:
    performer = await running(tmp_path, with_pre_stop())
    hook = performer.runtime.hang("ExecSync")
    call = performer.begin(kill_one(performer, pre_stop=True))
    await performer.pass_time(1.0)
    call.cancel()
    await asyncio.wait({call})
    again = performer.begin(kill_one(performer, grace=9, pre_stop=True, hook_spent=1))
    await performer.pass_time(3.5)
    assert performer.stops() == {}
    hook.release.set()
    await performer.settle()
    assert isinstance(await again, CallDone)
    assert performer.stops() == {"c": 6}
    assert performer.runtime.methods() == ["ExecSync", "StopContainer"]


@on_virtual_time
async def test_a_shorter_grace_ends_the_wait_for_a_hook_that_runs(tmp_path: Path) -> None:
    performer = await running(tmp_path, with_pre_stop())
    performer.runtime.hang("ExecSync")
    call = performer.begin(kill_one(performer, pre_stop=True))
    await performer.pass_time(1.0)
    call.cancel()
    await asyncio.wait({call})
    again = performer.begin(kill_one(performer, grace=3, pre_stop=True, hook_spent=1))
    await performer.pass_time(4.1)
    assert isinstance(await again, CallDone)
    assert performer.stops() == {"c": 2} and ours() == []


@on_virtual_time
async def test_a_hook_that_was_begun_by_an_earlier_process_is_not_run_again(tmp_path: Path) -> None:
    performer = await running(tmp_path, with_pre_stop())
    assert isinstance(await performer.perform(kill_one(performer, pre_stop=True, hook_spent=4)), CallDone)
    assert performer.runtime.methods() == ["StopContainer"] and performer.stops() == {"c": 30}


@on_virtual_time
async def test_a_sleep_that_was_begun_by_an_earlier_process_goes_on_for_the_rest_of_its_time(tmp_path: Path) -> None:
    performer = await running(tmp_path, with_pre_stop(handler={"sleep": {"seconds": 10}}))
    call = performer.begin(kill_one(performer, pre_stop=True, hook_spent=4))
    await performer.pass_time(5.9)
    assert performer.stops() == {}
    await performer.pass_time(0.2)
    assert isinstance(await call, CallDone) and performer.stops() == {"c": 24}


@on_virtual_time
async def test_removing_tries_all_and_keeps_logs_that_are_to_stay(tmp_path: Path) -> None:
    performer = await running(tmp_path, *a_row("a", "b"))
    logs = {name: tmp_path / f"{name}.log" for name in ("a", "b")}
    for log in logs.values():
        log.write_text("output")
    performer.runtime.fail("RemoveContainer", "Unknown", "busy")
    entries = tuple((performer.ids[name], name, str(log)) for name, log in logs.items())
    failed = await performer.perform(RemoveContainers(uid=UID, containers=entries))
    assert isinstance(failed, CallFailed) and failed.text == "busy"
    assert (logs["a"].exists(), logs["b"].exists()) == (True, False)
    done = await performer.perform(RemoveContainers(uid=UID, containers=entries[:1], keep_logs=True))
    assert isinstance(done, CallDone) and isinstance(done.result, PodListed)
    assert logs["a"].exists() and not done.result.pod.containers


@on_virtual_time
async def test_logs_however_large_are_removed_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    monkeypatch.setattr(PodDirectories, "remove_container_logs", lambda *_: threads.append(threading.current_thread()))
    performer = await running(tmp_path, *a_row("a"))
    await performer.perform(RemoveContainers(uid=UID, containers=((performer.ids["a"], "a", "/none"),)))
    assert [thread is threading.main_thread() for thread in threads] == [False]


@on_virtual_time
async def test_a_sandbox_is_stopped_once_more_before_it_is_removed(tmp_path: Path) -> None:
    performer = await running(tmp_path)
    done = await performer.perform(RemoveSandboxes(uid=UID, sandboxes=(performer.sandbox, "gone")))
    assert isinstance(done, CallDone)
    assert performer.runtime.methods() == ["StopPodSandbox", "EndTask", "RemovePodSandbox"] * 2
