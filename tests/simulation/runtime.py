"""The fake runtime as another process: a call that was sent is performed even when its caller is killed.

Reports every effect to the oracle. Decides nothing about the agent.
"""

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from shared.cri.interface import ExecResult, Message, RuntimeCallError
from shared.model.frozen_copy import replace
from shared.model.runtime import ContainerState, SandboxState
from shared.time.clock import Clock
from tests.fakes.runtime import FakeRuntime
from tests.simulation.faults import Fault, RuntimeFault
from tests.simulation.loop import INCARNATION, Incarnation
from tests.simulation.oracle import Oracle
from tests.simulation.story import Story
from tests.simulation.workload import Run

if TYPE_CHECKING:
    from tests.simulation.claim_oracle import ClaimOracle
    from tests.simulation.placement_oracle import PlacementOracle

T = TypeVar("T")

_SECONDS = {
    "RunPodSandbox": 0.12,
    "CreateContainer": 0.03,
    "StartContainer": 0.06,
    "PullImage": 0.4,
    "UpdateContainerResources": 0.4,  # longer than the way of a pod to its start, so that a start must wait for it
}
_QUIET = frozenset({"Observe", "Status", "Version", "ListImages", "ImageStatus", "ImageFsInfo", "ExecSync"})
SETTLES = 0.004  # seconds from a process's end until the runtime shows it


@dataclass
class _Order:
    fault: RuntimeFault
    left: int


class SimulationRuntime(FakeRuntime):
    """`run_of` returns how a container behaves at its n-th start: (pod uid, container, start from 0)."""

    def __init__(
        self,
        clock: Clock,
        story: Story,
        oracle: Oracle,
        rng: Random,
        *,
        run_of: Callable[[str, str, int], Run],
        faults: tuple[Fault, ...] = (),
        **world: Any,
    ) -> None:
        super().__init__(clock, **world)
        self.run_of = run_of
        self.execute = self._execute
        self._story, self._oracle, self._rng = story, oracle, rng
        self._orders = [_Order(f, f.times) for f in faults if isinstance(f, RuntimeFault)]
        self.placement: PlacementOracle | None = None  # on a node with devices and static policies
        self.claims: ClaimOracle | None = None  # on a node with a driver of resource claims
        self._began = clock.monotonic()
        self._runs: dict[str, tuple[Run, float]] = {}  # container id -> its run, when it started
        self._updated_at: dict[str, float] = {}  # container id -> when the last update of its resources takes effect
        self._boot = 0  # how often the machine has lost its power

    def bury(self, incarnation: Incarnation) -> None:
        """This client is no more: pleg is the only one that reads events."""
        if incarnation.service == "pleg":
            self._readers.clear()

    async def close(self) -> None:
        """A client closes; the runtime stays."""

    def lose_power(self, *, keeps: bool) -> None:
        """The machine has no power: every process ends. `keeps`: pods are listed as ended afterwards."""
        self._boot += 1
        self._runs.clear()
        self._unsettled.clear()
        self._readers.clear()
        if not keeps:
            self._sandboxes.clear()
            self._containers.clear()
            self._names.clear()
        for pod in self._sandboxes.values():
            pod.sandbox = replace(pod.sandbox, state=SandboxState.NOTREADY, pid=0, ips=())
        for held in self._containers.values():
            if held.container.state is ContainerState.RUNNING:
                held.container = replace(
                    held.container,
                    state=ContainerState.EXITED,
                    exit_code=255,
                    reason="Unknown",
                    finished_at=int(self.clock.wall() * 1e9),
                    pid=0,
                )

    async def _do(self, method: str, request: Message, effect: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        incarnation = INCARNATION.get()
        answered: asyncio.Future[T] = loop.create_future()
        who = incarnation.service if incarnation else "?"
        if method not in _QUIET:
            self._oracle.requested(method, request, who)
        server = contextvars.Context()
        took = _SECONDS.get(method, 0.003) * self._rng.uniform(0.5, 1.5)
        answer = _Answer(answered, loop)
        order = self._fault(method)
        way = self._rng.uniform(0.0005, 0.002)

        boot = self._boot

        def carry_out(answered: bool) -> None:
            if boot != self._boot:
                return
            self._carry_out(method, request, who, effect, answer if answered else _Answer(None, loop))

        if order is None:
            at = loop.time() + way + took
            if method == "UpdateContainerResources":  # containerd updates a container by one call after the other
                at = max(at, self._updated_at.get(request["container_id"], 0.0) + 1e-6)
                self._updated_at[request["container_id"]] = at
            loop.call_at(at, carry_out, True, context=server)
        else:
            fault = order.fault
            error = RuntimeCallError(method, fault.code, f"injected into {method}")
            timeout = 2.0 if fault.code == "DeadlineExceeded" else 0.0
            answered_at = way + timeout
            self._story.add("runtime", f"{method} of {who}{_about(request)} fails with {fault.code}")
            if method == "UpdateContainerResources" and self.placement is not None:
                self.placement.refused(request["container_id"])
            loop.call_later(answered_at, answer.fail, error, context=server)
            if fault.effect:
                loop.call_later(min(way + took, answered_at) + fault.late, carry_out, False, context=server)
        return await answered

    def _fault(self, method: str) -> _Order | None:
        now = self.clock.monotonic() - self._began
        for order in self._orders:
            fault = order.fault
            if not fault.at <= now < fault.at + fault.seconds or fault.method not in ("", method):
                continue
            if fault.times:
                if not order.left:
                    continue
                order.left -= 1
            return order
        return None

    def _carry_out(self, method: str, request: Message, who: str, effect: Callable[[], Any], answer: "_Answer") -> None:
        try:
            if method == "StopContainer":
                self._stopping(request["container_id"], request.get("timeout", 0), answer)
                self._story.add("runtime", f"{method} of {who}{_about(request)} timeout={request.get('timeout', 0)}")
                return
            result = effect()
        except RuntimeCallError as error:
            self._story.add("runtime", f"{method} of {who}{_about(request)} refused: {error.code} {_short(error)}")
            answer.fail(error)
            return
        if method not in _QUIET:
            shown = f" -> {result[:8]}" if isinstance(result, str) and result else ""
            self._story.add("runtime", f"{method} of {who}{_about(request)}{shown}")
            self._oracle.carried_out(method, request, result)
            if method == "UpdateContainerResources" and self.placement is not None:
                self.placement.changed(request["container_id"])
        else:
            self._story.note("runtime", f"{method} of {who}{_about(request)}")
        answer.give(result)

    def _start(self, container_id: str) -> None:
        held = self._containers.get(container_id)
        before = self._oracle.running_namesakes(container_id)
        super()._start(container_id)
        assert held is not None
        container = held.container
        uid = self._uid_of(container.sandbox_id)
        number = self._oracle.started(uid, container.name, container_id, before)
        others = [c for c in self.pods()[uid].containers if c.state is ContainerState.RUNNING and c.id != container_id]
        self._oracle.one_of_a_name(uid)
        self._oracle.begins_beside(uid, container.name, [c.name for c in others])
        if self.placement is not None:
            self.placement.started(uid, container.name, container_id)
        if self.claims is not None:
            self.claims.started(uid, container.name, container_id)
        run = self.run_of(uid, container.name, number)
        self._runs[container_id] = (run, self.clock.monotonic())
        if run.seconds is not None:
            self._later(run.seconds, self._ends, container_id, run.code)

    def _ends(self, container_id: str, code: int) -> None:
        held = self._containers.get(container_id)
        if held is None or held.container.state is not ContainerState.RUNNING:
            return
        if held.container.pid in self._ended_pids:
            return
        self._story.add("process", f"{held.container.name} {container_id[:8]} ends with {code}")
        self.exit_container(container_id, code, settled=False)
        self._later(SETTLES, self.settle_exits)

    def _stopping(self, container_id: str, timeout: int, answer: "_Answer") -> None:
        held = self._containers.get(container_id)
        if held is None:
            self._stop(container_id)  # raises: there is no such container
            return
        if held.container.state is not ContainerState.RUNNING:
            answer.give(None)
            return
        self._oracle.stopping(container_id)
        run, _ = self._runs[container_id]
        if run.stop is not None and run.stop < timeout:
            self._later(run.stop, self._ends, container_id, 143)
            self._later(run.stop + 2 * SETTLES, answer.give, None)
            return
        self._later(timeout, self._kill, container_id)
        self._later(timeout + 2 * SETTLES, answer.give, None)

    def _kill(self, container_id: str) -> None:
        held = self._containers.get(container_id)
        if held is not None and held.container.state is ContainerState.RUNNING:
            self._oracle.killed(self._uid_of(held.container.sandbox_id), container_id)
            self._ends(container_id, 137)

    def _end(self, held: Any, code: int) -> None:
        """A removal, or the stop of a sandbox, ends what still runs in it."""
        if held.container.state is ContainerState.RUNNING:
            self._oracle.killed(self._uid_of(held.container.sandbox_id), held.container.id)
        super()._end(held, code)

    def _execute(self, container_id: str, command: tuple[str, ...]) -> ExecResult:
        run, began = self._runs[container_id]
        up = self.clock.monotonic() - began
        well = up >= run.ready if command[0] == "readiness" else run.alive is None or up < run.alive
        return ExecResult(exit_code=0 if well else 1)

    def _later(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, do, *args, context=contextvars.Context())


class _Answer:
    """The way back to the caller, who may not be waiting any more."""

    def __init__(self, future: "asyncio.Future[Any] | None", loop: asyncio.AbstractEventLoop) -> None:
        self._future, self._loop = future, loop

    def give(self, result: Any) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(result)

    def fail(self, error: RuntimeCallError) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_exception(error)


def _about(request: Message) -> str:
    config = request.get("config") or {}
    metadata = config.get("metadata") or {}
    if "pod_sandbox_id" in request and metadata:
        return f" {metadata.get('name')}#{metadata.get('attempt', 0)} in {request['pod_sandbox_id'][:8]}"
    if metadata:
        return f" {metadata.get('name')}#{metadata.get('attempt', 0)}"
    for key in ("container_id", "pod_sandbox_id", "uid"):
        if key in request:
            return f" {request[key][-12:] if key == 'uid' else request[key][:8]}"
    image = request.get("image")
    return f" {image.get('image')}" if isinstance(image, dict) else ""


def _short(error: RuntimeCallError) -> str:
    return error.description[:100]
