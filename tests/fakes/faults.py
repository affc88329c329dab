"""Faults a test can order for the calls of a fake runtime: fail, take longer, hang; before or after the effect."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from shared.cri.interface import RuntimeCallError


@dataclass
class Fault:
    """What to do to the next call of a method, `times` times (0 = for ever)."""

    kind: Literal["fail", "delay", "hang"]
    code: str = ""
    description: str = ""
    after: bool = False  # the call takes effect first
    seconds: float = 0.0
    times: int = 1
    reached: asyncio.Event = field(default_factory=asyncio.Event)  # set when a call ran into it
    release: asyncio.Event = field(default_factory=asyncio.Event)  # set it to let a hung call go on


class Faults:
    """The faults ordered so far, by CRI method; `Observe` stands for the reads of one observation."""

    def __init__(self) -> None:
        self._faults: dict[str, deque[Fault]] = {}
        self._ordered: list[Fault] = []

    def fail(
        self,
        method: str,
        code: str = "Unavailable",
        description: str = "injected",
        *,
        after: bool = False,
        times: int = 1,
    ) -> Fault:
        """The next `times` calls of the method fail; with `after`, once they have taken effect."""
        return self._add(method, Fault("fail", code=code, description=description, after=after, times=times))

    def delay(self, method: str, seconds: float, *, after: bool = False, times: int = 1) -> Fault:
        """The next `times` calls take `seconds` longer, before or after they have taken effect."""
        return self._add(method, Fault("delay", seconds=seconds, after=after, times=times))

    def hang(self, method: str, *, after: bool = False, times: int = 1) -> Fault:
        """The next `times` calls hang until the fault's `release` is set; its `reached` is set once one does."""
        return self._add(method, Fault("hang", after=after, times=times))

    def clear_faults(self) -> None:
        """Forget all faults and let hung calls go on."""
        for fault in self._ordered:
            fault.release.set()
        self._ordered.clear()
        self._faults.clear()

    def _add(self, method: str, fault: Fault) -> Fault:
        self._faults.setdefault(method, deque()).append(fault)
        self._ordered.append(fault)
        return fault

    def next_fault(self, method: str) -> Fault | None:
        faults = self._faults.get(method)
        if not faults:
            return None
        fault = faults[0]
        if fault.times == 1:
            faults.popleft()
        elif fault.times > 1:
            fault.times -= 1
        return fault

    async def suffer(self, method: str, fault: Fault) -> None:
        fault.reached.set()
        if fault.kind == "fail":
            raise RuntimeCallError(method, fault.code, fault.description)
        if fault.kind == "delay":
            await asyncio.sleep(fault.seconds)
        else:
            await fault.release.wait()
