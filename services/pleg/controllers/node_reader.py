"""Requests the runtime's status, reads the machine and publishes both as `node.observed`, in a loop for each."""

import asyncio
from collections.abc import Awaitable, Callable

from bus.interface import OwnedStream
from bus.messages.pleg import NodeObserved
from services.frame.launch import Context
from services.pleg.adapters.waiting import wait_for
from services.pleg.core.mountpoints import Mountpoints, mountpoints_of
from services.pleg.core.node_observation import MachineReading, NodeObservation
from shared.cri.interface import Runtime, RuntimeCallError, RuntimeFeatures, RuntimeVersion

STATUS_SECONDS = 5.0  # between two readings, as in the kubelet (pods.md 0.1)
MAX_ANSWER_SECONDS = 10.0  # a slower answer to Status counts as none
ReadMachine = Callable[[str], Awaitable[MachineReading]]  # of a path on the filesystem of the root directory


class NodeReader:
    """Updates `facts` and publishes them; `trouble` gets the error of each call to the runtime, or None."""

    def __init__(
        self,
        runtime: Runtime,
        context: Context,
        facts: NodeObservation,
        stream: OwnedStream[NodeObserved],
        *,
        trouble: Callable[[RuntimeCallError | None], None],
        machine: ReadMachine,
    ) -> None:
        self._runtime, self._bus, self._clock, self._facts = runtime, context.bus, context.clock, facts
        self._stream, self._trouble, self._machine = stream, trouble, machine
        self._nodefs = context.config.root_dir
        self.mountpoints: Mountpoints | None = None  # None = not known yet
        self._version: RuntimeVersion | None = None
        self._features = RuntimeFeatures()
        self._ask_now = asyncio.Event()

    async def run(self) -> None:
        """Read until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ask_runtime(), name="runtime-status")
            tasks.create_task(self._read_machine(), name="machine")

    def runtime_turned(self) -> None:
        """Request the status and the version now: the runtime stopped or began to answer, and may be another one."""
        self._version = None
        self._ask_now.set()

    def publish(self) -> None:
        """Publish the facts, if they are complete enough and have changed."""
        self._bus.progress("node")
        if (observed := self._facts.to_publish(self._clock.monotonic())) is not None:
            self._stream.put("node", observed, "node facts")
            self._stream.mark_complete()

    async def _ask_runtime(self) -> None:
        while True:
            try:
                async with asyncio.timeout(MAX_ANSWER_SECONDS):
                    if (version := self._version) is None:
                        version = await self._runtime.version()
                        self._features = await self._runtime.features()  # they change only with the runtime
                        self.mountpoints = await self._mountpoints()
                    conditions = await self._runtime.status()
            except (RuntimeCallError, TimeoutError) as failure:
                if isinstance(failure, TimeoutError):
                    failure = RuntimeCallError("Status", "DeadlineExceeded", f"no answer in {MAX_ANSWER_SECONDS:.0f} s")
                self._version = None
                self._facts.runtime_silent(self._clock.monotonic())
                self._trouble(failure)
            else:
                self._version = version
                self._facts.runtime_answered(version, conditions, self._clock.monotonic(), self._features)
                self._trouble(None)
            self.publish()
            await wait_for(self._ask_now, STATUS_SECONDS)

    async def _mountpoints(self) -> Mountpoints:
        """Return where images and writable layers are; where the runtime does not report it, nodefs is used."""
        try:
            return mountpoints_of(await self._runtime.filesystems())
        except RuntimeCallError:
            return Mountpoints()

    async def _read_machine(self) -> None:
        while True:
            reading = await self._machine(self._nodefs)
            self._facts.machine_read(reading, self._clock.monotonic())
            self.publish()
            await asyncio.sleep(STATUS_SECONDS)
