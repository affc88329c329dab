"""Shows where the tasks of an event loop wait, as text for a log: names of tasks and the lines of their coroutines."""

import asyncio
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

MAX_TASKS = 200
_MAX_DEPTH = 50  # frames of one stack


def task_stacks(loop: asyncio.AbstractEventLoop, most: int = MAX_TASKS) -> str:
    """Return every task that is not done, by name, each with the lines it waits in, outermost first."""
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    lines: list[str] = []
    for task in tasks[:most]:
        lines.append(f"Task {task.get_name()}:\n")
        lines += [f'  File "{code.co_filename}", line {line} in {code.co_name}\n' for code, line in _waits_in(task)]
    if len(tasks) > most:
        lines.append(f"and {len(tasks) - most} other tasks\n")
    return "".join(lines)


def _waits_in(task: "asyncio.Task[Any]") -> Iterator[tuple[CodeType, int]]:
    """Follows what each coroutine awaits; `Task.get_stack` shows the outermost frame alone."""
    waits: Any = task.get_coro()
    for _ in range(_MAX_DEPTH):
        frame = _first(waits, "cr_frame", "gi_frame", "ag_frame")
        if not isinstance(frame, FrameType):
            return
        yield frame.f_code, frame.f_lineno
        waits = _first(waits, "cr_await", "gi_yieldfrom", "ag_await")


def _first(waits: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(waits, name, None)) is not None), None)
