"""Answers why a container was restarted, from the lines of a story: one answer for each further attempt.

Pure: lines in, answers out. The chain is: what ended the attempt before, what was waited for, when the next began.
"""

from typing import Any

from msgspec import Struct

from shared.story.lines import Kind, Line, is_moment


class Restart(Struct, frozen=True, kw_only=True):
    """`at`: wall-clock seconds at which the attempt was started; `because`: one sentence without its full stop."""

    container: str
    attempt: int
    at: float
    because: str
    waited: str = ""  # why it was not started at once


def restarts(lines: list[Line]) -> list[Restart]:
    """Return every attempt after the first whose start the story has, in order."""
    found: list[Restart] = []
    ended: dict[str, Line] = {}  # container -> its newest end in the story
    killed: dict[str, str] = {}  # container -> why its end was decided, newest
    failed: dict[str, Line] = {}  # container -> the newest failure of a probe that ends it
    waited: dict[str, str] = {}
    changed = False  # whether the pod got another sandbox at some time
    in_newest: set[str] = set()  # containers started in the newest sandbox
    last: dict[str, int] = {}
    for line in lines:
        what, container = line.get("what"), str(line.get("container") or "")
        if what == Kind.EVENT and line.get("reason") == "Killing":
            killed[container] = str(line.get("message") or "")
        elif what == Kind.EVENT and line.get("reason") == "BackOff" and "restarting" in str(line.get("message")):
            waited[container] = "back-off"
        elif what == Kind.EVENT and line.get("reason") == "SandboxChanged":
            changed, in_newest = True, set()
        elif what == Kind.CONTAINER and line.get("state") in ("EXITED", "UNKNOWN"):
            ended[container] = line
        elif what == Kind.PROBE and line.get("result") == "failure" and line.get("probe") in ("liveness", "startup"):
            failed[container] = line
        elif what == Kind.DONE and line.get("call") == "StartContainer":
            attempt = _number(line.get("attempt"))
            if attempt > 0 and last.get(container) != attempt:
                new_sandbox = changed and container not in in_newest
                because = _because(ended.get(container), killed.get(container, ""), failed.get(container), new_sandbox)
                found.append(
                    Restart(
                        container=container,
                        attempt=attempt,
                        at=_moment(line.get("at")),
                        because=because,
                        waited=_waited(line, ended.get(container), waited.get(container, "")),
                    )
                )
            last[container] = attempt
            for memory in (ended, killed, failed, waited):
                memory.pop(container, None)
            in_newest.add(container)
    return found


def _because(ended: Line | None, killed: str, failed: Line | None, new_sandbox: bool) -> str:
    parts = []
    if killed:
        output = f" ({failed['output']})" if failed is not None and failed.get("output") else ""
        parts.append(f"{killed}{output}")
    if new_sandbox:
        parts.append("the pod's sandbox was gone and a new one was made")
    if ended is not None:
        parts.append(how_it_ended(ended))
    return "; ".join(parts) or "not known: its end lies before what is left of the story"


def how_it_ended(line: Line) -> str:
    """Return how the instance ended, as in `attempt 2 ended with exit code 137 (OOMKilled) after 12.4 s`."""
    if line.get("state") == "UNKNOWN":
        return f"attempt {line.get('attempt')} was lost by the runtime"
    reason = f" ({line['reason']})" if line.get("reason") else ""
    ran_for = _moment(line.get("finished")) - _moment(line.get("started"))
    ran = f" after {ran_for:.1f} s" if _moment(line.get("started")) and ran_for >= 0 else ""
    return f"attempt {line.get('attempt')} ended with exit code {line.get('exit_code')}{reason}{ran}"


def _waited(started: Line, ended: Line | None, why: str) -> str:
    if not why or ended is None or not _moment(ended.get("finished")):
        return ""
    return f"{max(0.0, _moment(started.get('at')) - _moment(ended['finished'])):.1f} s of {why}"


def _moment(value: Any) -> float:
    return float(value) if is_moment(value) else 0.0


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
