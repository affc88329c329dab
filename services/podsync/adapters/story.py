"""Writes the story of each pod: every event and instruction with its cause, one JSON line each, bounded on disk.

Told, never believed: nothing is decided from a story, so a line lost to a full disk or a crash costs only the telling.
"""

import contextlib
import logging
import queue
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import orjson

from bus.messages.podsync import AdmittedPod, PodStatus
from services.podsync.core.events import Event, PodDesired, PodObserved
from services.podsync.core.instructions import Instruction, PublishAdmitted, RecordEvent
from shared.model.runtime import RuntimePod

log = logging.getLogger(__name__)

BYTES_PER_FILE = 128 * 1024  # two files per pod at most: the present one and the one before
LINES_WAITING = 2000
STORIES_KEPT = 200  # of pods that are gone


class StoryBook:
    """One `<uid>.jsonl` per pod in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._broken = False
        self._lines: queue.Queue[tuple[str, bytes] | None] = queue.Queue(LINES_WAITING)
        self._writer: threading.Thread | None = None
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def tell(self, uid: str, now: float, what: Event | Instruction) -> None:
        """Append one line, soon: a thread writes, so that a disk that hangs holds nobody up. What it cannot keep up
        with is left out."""
        line = orjson.dumps({"at": round(now, 6), "what": type(what).__name__, "cause": what.cause, **_facts(what)})
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_all, name="stories", daemon=True)
            self._writer.start()
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait((uid, line))

    def close(self) -> None:
        """Write what waits, for at most a second."""
        if self._writer is not None:
            with contextlib.suppress(queue.Full):
                self._lines.put_nowait(None)
            self._writer.join(timeout=1.0)
            self._writer = None

    def _write_all(self) -> None:
        while (told := self._lines.get()) is not None:
            self._write(*told)

    def _write(self, uid: str, line: bytes) -> None:
        """Never raises for a disk that refuses; says so once."""
        path = self.directory / f"{uid}.jsonl"
        try:
            if path.exists() and path.stat().st_size + len(line) > BYTES_PER_FILE:
                path.replace(path.with_suffix(".1.jsonl"))
            with path.open("ab") as file:
                file.write(line + b"\n")
            self._broken = False
        except OSError as error:
            if not self._broken:
                log.warning("the story of pod %s has a gap: %s: %s", uid, path, error.strerror)
            self._broken = True

    def keep_newest(self, living: set[str]) -> None:
        """Drop the stories of the longest gone pods; called when a pod is forgotten."""
        try:
            gone = [path for path in self.directory.glob("*.jsonl") if path.name.split(".")[0] not in living]
            gone.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        except OSError:
            return
        for path in gone[2 * STORIES_KEPT :]:
            path.unlink(missing_ok=True)


def uid_of(what: Event | Instruction) -> str:
    """The pod an event or instruction is about, "" for none."""
    if isinstance(what, PodObserved):
        return what.observation.uid
    if isinstance(what, PublishAdmitted):
        return what.admitted.uid
    if isinstance(what, RecordEvent):
        return what.event.uid
    status = getattr(what, "status", None)
    return str(getattr(what, "uid", "") or getattr(status, "uid", ""))


def _facts(what: Event | Instruction) -> dict[str, Any]:
    """The small fields of an event or instruction; whole objects are shortened to what tells the story."""
    facts: dict[str, Any] = {}
    for item in fields(what):
        value = getattr(what, item.name)
        if item.name in ("cause", "uid", "pod", "record", "listed", "node", "error") or value in ("", None, (), 0.0):
            continue
        if isinstance(value, RuntimePod):
            facts["seen"] = [f"{c.name}#{c.attempt} {c.state} {c.id[:12]} exit={c.exit_code}" for c in value.containers]
            facts["sandboxes"] = [f"#{s.attempt} {s.state} {s.id[:12]}" for s in value.sandboxes]
        elif isinstance(value, AdmittedPod):
            facts["state"] = value.state
        elif isinstance(value, PodStatus):
            facts["phase"], facts["version"] = value.status.get("phase"), value.version
        elif isinstance(value, Instruction):
            facts[item.name] = type(value).__name__
        else:
            facts[item.name] = value
    if isinstance(what, PodDesired):
        facts["name"] = (what.pod.get("metadata") or {}).get("name")
    if isinstance(what, PodObserved):
        facts["observed_at"] = what.observation.observed_at
    return facts
