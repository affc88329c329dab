"""Queues the instructions of one pod, and withholds saves and statuses that newer ones may replace.
Each instruction is carried out once, in order, unlike keys of a work queue, where the newest state replaces the older.
"""

from collections import deque
from collections.abc import Callable

from services.podsync.core.pod.instructions import (
    Call,
    ForgetPod,
    Instruction,
    PublishStatus,
    RemoveContainers,
    RemoveSandboxes,
    SavePod,
)

Queued = Instruction | Callable[[], None]  # a callable is called when everything before it is done


class InstructionQueue:
    """Has the waiting instructions of one pod. `later` is the newest record that is not urgent, `held` the newest
    status that another one is about to replace; both wait outside the queue until they are released or replaced."""

    def __init__(self) -> None:
        self.waiting: deque[Queued] = deque()
        self.later: SavePod | None = None
        self.held: PublishStatus | None = None

    def add(self, instruction: Instruction) -> None:
        """Append the instruction, or withhold it."""
        if isinstance(instruction, SavePod) and not instruction.urgent:
            self.later = instruction
            return
        if isinstance(instruction, PublishStatus) and instruction.on_the_way:
            self.held = instruction
            return
        if isinstance(instruction, SavePod | ForgetPod):
            self.later = None  # the withheld record is older
        if isinstance(instruction, PublishStatus | ForgetPod):
            self.held = None
        elif isinstance(instruction, RemoveContainers | RemoveSandboxes):
            self.release_save()  # the record may have facts that the removal takes from the runtime
        self.waiting.append(instruction)

    def release_save(self) -> None:
        """Append the withheld record."""
        if self.later is not None:
            self.waiting.append(self.later)
            self.later = None

    def release_status(self) -> None:
        """Append the withheld status."""
        if self.held is not None:
            self.waiting.append(self.held)
            self.held = None

    def next_call(self) -> str:
        """Return the type of the first call that waits, "none" without one."""
        return next((type(queued).__name__ for queued in self.waiting if isinstance(queued, Call)), "none")
