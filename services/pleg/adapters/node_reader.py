"""Asks the runtime for its health and the machine for its signals, each on its own beat, and hands both to core.

Two loops, because a runtime that hangs must not keep memory and disk from being watched.
"""

import asyncio
from collections.abc import Callable

from services.pleg.adapters.machine import read_machine
from services.pleg.adapters.waiting import wait_for
from services.pleg.core.node import MachineReading, NodeFacts
from shared.clock import Clock
from shared.cri.interface import Runtime, RuntimeCallError, RuntimeFeatures, RuntimeVersion

STATUS_SECONDS = 5.0  # between two looks, as in the kubelet (pods.md 0.1)
ANSWER_SECONDS = 10.0  # a runtime that takes longer to say how it is counts as not answering
MachineReader = Callable[[str, str], MachineReading]  # (path on nodefs, path on imagefs)


class NodeReader:
    """Feeds a NodeFacts; `changed` is called after each reading, `trouble` with a line when the runtime is silent."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        facts: NodeFacts,
        nodefs: str,
        *,
        changed: Callable[[], None],
        trouble: Callable[[RuntimeCallError | None], None],
        machine: MachineReader = read_machine,
    ) -> None:
        self._runtime, self._clock, self._facts = runtime, clock, facts
        self._changed, self._trouble, self._machine = changed, trouble, machine
        self._nodefs, self._imagefs = nodefs, ""
        self._version: RuntimeVersion | None = None
        self._features = RuntimeFeatures()
        self._ask_now = asyncio.Event()

    async def run(self) -> None:
        """Read for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ask_runtime(), name="runtime-status")
            tasks.create_task(self._read_machine(), name="machine")

    def runtime_turned(self) -> None:
        """The runtime went away or came back: ask now, and its version anew, for it may be another one."""
        self._version = None
        self._ask_now.set()

    async def _ask_runtime(self) -> None:
        while True:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    if (version := self._version) is None:
                        version = await self._runtime.version()
                        self._features = await self._runtime.features()  # another one only with another runtime
                        self._imagefs = await self._imagefs_mountpoint()
                    conditions = await self._runtime.status()
            except (RuntimeCallError, TimeoutError) as failure:
                if isinstance(failure, TimeoutError):
                    failure = RuntimeCallError("Status", "DeadlineExceeded", f"no answer in {ANSWER_SECONDS:.0f} s")
                self._version = None
                self._facts.runtime_silent(self._clock.monotonic())
                self._trouble(failure)
            else:
                self._version = version
                self._facts.runtime_answered(version, conditions, self._clock.monotonic(), self._features)
                self._trouble(None)
            self._changed()
            await wait_for(self._ask_now, STATUS_SECONDS)

    async def _imagefs_mountpoint(self) -> str:
        """Where the images are; "" when the runtime does not say: then they are taken to be on nodefs."""
        try:
            usage = await self._runtime.image_fs_usage()
        except RuntimeCallError:
            return ""
        return usage[0][0] if usage else ""

    async def _read_machine(self) -> None:
        while True:
            reading = self._machine(self._nodefs, self._imagefs or self._nodefs)
            self._facts.machine_read(reading, self._clock.monotonic())
            self._changed()
            await asyncio.sleep(STATUS_SECONDS)
