"""Carries out the calls that stop and remove containers, with their preStop hooks and in their order, and sandboxes.
The core decides which containers, with which grace period and after which others (pods.md 8.1-8.3), and what is left
of the grace (`grace`); this module measures the waits. A call tries everything before it raises its first error. A
cancelled call leaves nothing running but preStop hooks, which run once: the next call waits for them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from services.podsync.adapters.calls.hooks import HookFailedError, run_hook
from services.podsync.adapters.calls.pod_operations import PodOperations, PodView, unless_absent
from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.pod.instructions import ContainerStop, EndTasks, KillPod, RemoveContainers, RemoveSandboxes
from services.podsync.core.sync.grace import (
    PreStop,
    may_stop_sandboxes,
    pre_stop_of,
    remaining_grace,
    sleep_left,
    stop_timeout,
)
from shared.cri.interface import RuntimeCallError
from shared.model.runtime import ContainerState
from shared.process.deadlines import waiting_for

log = logging.getLogger(__name__)

HOOK_END_SECONDS = 1.0  # a preStop hook that lasts longer than the grace ends with its container, at once
_MAX_DELAY_SECONDS = 60.0  # of the wait for a hook, which ends with the grace; a wait that lasts longer hangs
LOOK_SECONDS = 0.25  # between two looks; no event reports the end of a container that another process stops

Warn = Callable[[str, str, str], None]  # reason, message and container of a Warning event


@dataclass
class StopOrder:
    """Tracks which containers of one call have ended, for those that stop after others."""

    ended: dict[str, asyncio.Event] = field(default_factory=dict)  # container id -> set when its stop has returned
    failed: set[str] = field(default_factory=set)  # container ids whose stop returned an error


async def stop_container(operations: PodOperations, view: PodView, stop: ContainerStop, warn: Warn) -> None:
    """Run the preStop hook, then stop the container with what is left of the grace: whole seconds, two at least. The
    hook begins before this waits for anything. Raises RuntimeCallError."""
    await _stop(operations, view, stop, _begin_pre_stop(operations, view, stop), warn, StopOrder())


async def _stop(
    operations: PodOperations,
    view: PodView,
    stop: ContainerStop,
    hook: "asyncio.Task[bool] | None",
    warn: Warn,
    order: StopOrder,
) -> None:
    """Stop the container as `stop_container` does, while its preStop hook already runs. After the hook, wait for the
    containers that must end before this one."""
    grace = stop.grace_seconds
    try:
        if hook is not None:
            began = operations.clock.monotonic()
            with waiting_for("the preStop hook", grace + _MAX_DELAY_SECONDS):
                await asyncio.wait({hook}, timeout=grace)
            grace = remaining_grace(grace, operations.clock.monotonic() - began)
        if stop.after and grace > 0:
            began = operations.clock.monotonic()
            await _wait_for_others(operations, view, stop.after, order, grace)
            grace = remaining_grace(grace, operations.clock.monotonic() - began)
        await unless_absent(operations.runtime.stop_container(stop.container_id, stop_timeout(grace)))
        if hook is not None:
            await asyncio.wait({hook}, timeout=HOOK_END_SECONDS)
    except asyncio.CancelledError:
        hook = None  # it goes on: another stop of this container follows and waits for it
        raise
    finally:
        if hook is not None:
            hook.cancel()
            (failed,) = await asyncio.gather(hook, return_exceptions=True)
            if failed is True:
                warn("FailedPreStopHook", "PreStopHook failed", stop.container)


def _begin_pre_stop(operations: PodOperations, view: PodView, stop: ContainerStop) -> "asyncio.Task[bool] | None":
    """Return the task of this instance's preStop hook: the one that runs, else a new one. A hook that an earlier
    process began is not repeated, but a sleep continues for the rest of its time. None = no hook, or no time for it."""
    what = pre_stop_of(stop)
    if what is PreStop.NOTHING:
        return None
    running = operations.pre_stops.get(stop.container_id)
    if running is not None:
        return running
    hook = asyncio.create_task(_pre_stop(operations, view, stop, what), name=f"preStop {stop.container}")
    operations.pre_stops[stop.container_id] = hook
    hook.add_done_callback(lambda _: operations.pre_stops.pop(stop.container_id, None))
    return hook


async def _pre_stop(operations: PodOperations, view: PodView, stop: ContainerStop, what: PreStop) -> bool:
    """Run the hook and return whether it failed. It never raises: a hook that fails delays no stop, and its output is
    in no event and no log."""
    try:
        container = view.container(stop.container)
        if what is PreStop.SLEEP_ON:
            await asyncio.sleep(sleep_left(container, stop))
        else:
            await run_hook(operations, view, container, stop.container_id, "preStop")
    except ContainerConfigError:
        return False  # the spec no longer has the container
    except HookFailedError:
        log.info("the preStop hook of container %s of pod %s failed", stop.container, view.description)
    except Exception:
        log.exception("the preStop hook of container %s of pod %s broke", stop.container, view.description)
    else:
        return False
    return True


async def _wait_for_others(
    operations: PodOperations, view: PodView, container_ids: Iterable[str], order: StopOrder, seconds: float
) -> None:
    """Wait until all of these containers have ended, at most `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(_wait_for_end(operations, view, each, order) for each in container_ids))
    except TimeoutError:
        log.info("containers of pod %s did not end in time for one that stops after them", view.description)


async def _wait_for_end(operations: PodOperations, view: PodView, container_id: str, order: StopOrder) -> None:
    if container_id in order.ended:
        await order.ended[container_id].wait()
        if container_id not in order.failed:
            return
    sandbox = view.sandbox_of.get(container_id, "")
    while sandbox:
        try:
            seen = await operations.runtime.inspect_container(container_id, sandbox)
            if seen is None or seen.state is ContainerState.EXITED:
                return
        except RuntimeCallError:
            pass  # the container may still run
        await asyncio.sleep(LOOK_SECONDS)


async def kill_pod(operations: PodOperations, call: KillPod, view: PodView, warn: Warn) -> None:
    """Stop the containers in parallel, then the sandboxes, unless a container that could not be stopped has time left.
    Every hook begins before this waits for anything. Raises the first RuntimeCallError."""
    hooks = {stop.container_id: _begin_pre_stop(operations, view, stop) for stop in call.containers}
    order = StopOrder(ended={stop.container_id: asyncio.Event() for stop in call.containers})

    async def stop_in_order(stop: ContainerStop) -> None:
        try:
            await _stop(operations, view, stop, hooks[stop.container_id], warn, order)
        except RuntimeCallError:
            order.failed.add(stop.container_id)
            raise
        finally:
            order.ended[stop.container_id].set()

    stopped = await asyncio.gather(*(stop_in_order(stop) for stop in call.containers), return_exceptions=True)
    failures = [result for result in stopped if isinstance(result, BaseException)]
    if not may_stop_sandboxes(call.containers, failed=bool(failures)):
        raise failures[0]
    failures += await _try_all(operations.runtime.stop_pod_sandbox(sandbox_id) for sandbox_id in call.sandboxes)
    if failures:
        raise failures[0]


async def remove_containers(operations: PodOperations, call: RemoveContainers, view: PodView) -> None:
    """Remove each container with its logs, unless they are to stay. Raises the first RuntimeCallError."""

    async def remove(container_id: str, name: str, log_path: str) -> None:
        await unless_absent(operations.runtime.remove_container(container_id))
        if not call.keep_logs:
            await asyncio.to_thread(
                operations.directories.remove_container_logs, view.namespace, view.name, name, container_id, log_path
            )

    if failures := await _try_all(remove(*container) for container in call.containers):
        raise failures[0]


async def remove_sandboxes(operations: PodOperations, call: RemoveSandboxes) -> None:
    """Stop each sandbox once more, then remove it. Raises the first RuntimeCallError."""

    async def remove(sandbox_id: str) -> None:
        await unless_absent(operations.runtime.stop_pod_sandbox(sandbox_id))
        # containerd 2.1 keeps the task of a sandbox whose RunPodSandbox was cut off, and no call of CRI shows it later.
        with contextlib.suppress(RuntimeCallError):
            await operations.runtime.end_task(sandbox_id)
        await unless_absent(operations.runtime.remove_pod_sandbox(sandbox_id))

    if failures := await _try_all(remove(sandbox_id) for sandbox_id in call.sandboxes):
        raise failures[0]


async def end_tasks(operations: PodOperations, call: EndTasks, view: PodView) -> None:
    """End the runtime's own tasks, which keep it from a removal through CRI. Raises the first RuntimeCallError."""
    failures = await _try_all(operations.runtime.end_task(task_id) for task_id in call.ids)
    if call.refusal:
        outcome = f"its task cannot be ended either: {failures[0]}" if failures else "its task was ended"
        log.warning(
            "the runtime refuses to remove %s of pod %s: %s; %s", call.left, view.description, call.refusal, outcome
        )
    elif any(failure.code != "Unimplemented" for failure in failures):  # else the runtime is not containerd
        text = "what interrupted starts may have left of %s of pod %s cannot be ended: %s"
        log.warning(text, call.left, view.description, failures[0])
    if failures:
        raise failures[0]


async def _try_all(requests: Iterable[Awaitable[None]]) -> list[RuntimeCallError]:
    """Await the requests one after the other and return their errors; that something is absent is no error."""
    failures: list[RuntimeCallError] = []
    for request in requests:
        try:
            await unless_absent(request)
        except RuntimeCallError as error:
            failures.append(error)
    return failures
