"""The end of tasks that keep containers from being removed, against the fake runtime."""

from pathlib import Path

import pytest

from services.podsync.core.pod.call_results import PodListed
from services.podsync.core.pod.events import CallDone, CallFailed
from services.podsync.core.pod.instructions import EndTasks, RemoveSandboxes
from tests.fakes.virtual_time import on_virtual_time
from tests.service.podsync.performer import UID, a_container
from tests.service.podsync.test_stop_calls import running


@on_virtual_time
async def test_tasks_that_keep_containers_from_being_removed_are_all_ended_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    containers = [a_container("a"), a_container("b")]
    performer = await running(tmp_path, *containers)
    left = set(performer.ids.values())
    performer.runtime.left_tasks |= left
    call = EndTasks(uid=UID, ids=tuple(sorted(left)), left="containers a and b", refusal="cannot delete running task")
    performer.runtime.fail("EndTask", "DeadlineExceeded", "no end")
    failed = await performer.perform(call)
    assert isinstance(failed, CallFailed) and failed.code == "DeadlineExceeded"
    assert performer.runtime.left_tasks == {min(left)}
    done = await performer.perform(call)
    assert isinstance(done, CallDone) and isinstance(done.result, PodListed) and not performer.runtime.left_tasks
    lines = [record.getMessage() for record in caplog.records if "containers a and b" in record.getMessage()]
    assert [line.rpartition("; ")[2].split(":")[0] for line in lines] == [
        "its task cannot be ended either",
        "its task was ended",
    ]


@on_virtual_time
@pytest.mark.parametrize(("code", "is_logged"), [("", False), ("Unavailable", True), ("Unimplemented", False)])
async def test_without_a_refused_removal_only_a_failure_of_the_task_service_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: str, is_logged: bool
) -> None:
    performer = await running(tmp_path, a_container("a"))
    if code:
        performer.runtime.fail("EndTask", code, "not there")
    call = EndTasks(uid=UID, ids=(performer.ids["a"],), left="container a", refusal="")
    assert isinstance(await performer.perform(call), CallFailed if code else CallDone)
    lines = [record.getMessage() for record in caplog.records]
    assert ["container a" in line and "not there" in line for line in lines] == [True] * is_logged


@on_virtual_time
@pytest.mark.parametrize("fails", [False, True])
async def test_the_task_of_a_sandbox_ends_before_the_runtime_forgets_the_sandbox(tmp_path: Path, fails: bool) -> None:
    performer = await running(tmp_path)
    performer.runtime.left_tasks.add(performer.sandbox)
    if fails:
        performer.runtime.fail("EndTask", "Unimplemented", "another runtime")
    done = await performer.perform(RemoveSandboxes(uid=UID, sandboxes=(performer.sandbox,)))
    assert isinstance(done, CallDone) and not performer.runtime.pods()
    assert bool(performer.runtime.left_tasks) is fails
