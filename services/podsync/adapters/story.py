"""Writes the story of each pod: the lines of `core.story` with their time, in files of bounded size.
Nothing is decided from a story: a line that a full disk or a crash loses is missing in `bulkhead explain` alone.
"""

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from services.podsync.core.pod.events import Event, PodObserved
from services.podsync.core.pod.instructions import Instruction, PublishAdmitted, RecordEvent
from services.podsync.core.story import StoryLines
from shared.story.lines import Line
from shared.text.json_text import json_bytes

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 128 * 1024  # a pod has two files at most: the present one and the one before
MAX_WAITING_LINES = 10_000
GATHER_SECONDS = 0.2
MAX_OLD_STORIES = 200  # of pods that are gone


class StoryFiles:
    """Writes one `<uid>.jsonl` per pod into a directory. `boot`, `machine_started`: as in `StoryLines`."""

    def __init__(self, directory: Path, boot: int = 0, *, machine_started: bool = False) -> None:
        self.directory = directory
        self._story_lines = StoryLines(boot, machine_started=machine_started)
        self._broken = False
        self._forgotten = MAX_OLD_STORIES // 2  # pods, since the directory was listed last
        self._lines: queue.Queue[tuple[str, bytes, bytes] | None] = queue.Queue(MAX_WAITING_LINES)
        self._writer: threading.Thread | None = None
        self._closing = threading.Event()

    def add(self, uid: str, now: float, what: Event | Instruction) -> None:
        """Write the lines of this event or instruction soon; `now` is wall seconds. A thread writes, so that a disk
        that hangs delays no caller. Lines beyond MAX_WAITING_LINES are dropped."""
        self._queue_lines(uid, now, lambda: self._story_lines.describe(uid, what))

    def add_wait(self, uid: str, now: float, waits_for: str) -> None:
        """Write soon what the pod waits for, "" = nothing any more."""
        self._queue_lines(uid, now, lambda: self._story_lines.waits(uid, waits_for))

    def add_pull(self, uid: str, now: float, pull: Mapping[str, Any]) -> None:
        """Write soon how far the pull is that the pod waits for: the fields of an item of `pods.pulls`."""
        self._queue_lines(uid, now, lambda: self._story_lines.pulling(uid, pull))

    def take_up(self, uid: str, *, name: str, namespace: str, source: str) -> None:
        """Continue the story of a pod of an earlier process."""
        self._story_lines.take_up(uid, name=name, namespace=namespace, source=source)

    def forget(self, uid: str) -> None:
        """Drop what is kept in memory of this pod, which has no more lines."""
        self._story_lines.forget(uid)

    def _queue_lines(self, uid: str, now: float, lines_of: Callable[[], list[Line]]) -> None:
        try:
            lines = [json_bytes({"at": round(now, 3), **line}) for line in lines_of()]
            head = json_bytes(self._story_lines.head(uid)) if lines else b""
        except Exception:  # a failed line must not stop the caller
            log.exception("the story of pod %s has a gap", uid)
            return
        if not lines:
            return
        if self._writer is None:
            self._closing.clear()
            self._writer = threading.Thread(target=self._write_all, name="stories", daemon=True)
            self._writer.start()
        with contextlib.suppress(queue.Full):
            for line in lines:
                self._lines.put_nowait((uid, line, head))

    def close(self) -> None:
        """Write what waits, for at most a second."""
        if self._writer is not None:
            self._closing.set()  # the writer need not wait for more lines
            with contextlib.suppress(queue.Full):
                self._lines.put_nowait(None)
            self._writer.join(timeout=1.0)
            self._writer = None

    def _write_all(self) -> None:
        ended = False
        while not ended:
            entries = [self._lines.get()]
            if entries[0] is not None:
                self._closing.wait(GATHER_SECONDS)  # so that a file is opened once for all lines of a pod meanwhile
            with contextlib.suppress(queue.Empty):
                while True:
                    entries.append(self._lines.get_nowait())
            lines: dict[str, list[bytes]] = {}
            heads: dict[str, bytes] = {}
            for entry in entries:
                if entry is None:
                    ended = True
                else:
                    lines.setdefault(entry[0], []).append(entry[1])
                    heads[entry[0]] = entry[2]
            for uid, of_pod in lines.items():
                self._write(uid, of_pod, heads[uid])

    def _write(self, uid: str, lines: list[bytes], head: bytes) -> None:
        """Append the lines to the pod's file, which is rotated when it is full. An OSError is logged once."""
        path = self.directory / f"{uid}.jsonl"
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            while lines:
                size = path.stat().st_size if path.exists() else 0
                part = b""
                if size and size + len(lines[0]) + 1 > MAX_FILE_BYTES:
                    path.replace(path.with_suffix(".1.jsonl"))
                    size, part = 0, b'"part":true,'
                if size == 0 and len(head) > 2:
                    lines = [b"{" + part + head[1:], *lines]
                fitting = 1
                size += len(lines[0]) + 1
                while fitting < len(lines) and size + len(lines[fitting]) + 1 <= MAX_FILE_BYTES:
                    size += len(lines[fitting]) + 1
                    fitting += 1
                with open(path, "ab", opener=_open_for_root) as file:
                    file.write(b"\n".join([*lines[:fitting], b""]))
                lines = lines[fitting:]
            self._broken = False
        except OSError as error:
            if not self._broken:
                log.warning("the story of pod %s has a gap: %s: %s", uid, path, error.strerror)
            self._broken = True

    def keep_newest(self, present: Collection[str]) -> None:
        """Remove the oldest stories of pods other than `present` (UIDs); called when a pod is forgotten. It lists the
        directory at every hundredth call only, so that deleting many pods stays linear."""
        self._forgotten += 1
        if self._forgotten < MAX_OLD_STORIES // 2:
            return
        self._forgotten = 0
        try:
            every = self.directory.glob("*.jsonl")
            gone = [path for path in every if not any(uid in present for uid in _uids_of(path))]
            gone.sort(key=lambda path: path.stat().st_mtime, reverse=True)
            for path in gone[2 * MAX_OLD_STORIES :]:
                path.unlink(missing_ok=True)
        except OSError as error:  # what stays is tried again when the next pod is forgotten
            log.debug("stories in %s stay: %s", self.directory, error)


def _open_for_root(path: str, flags: int) -> int:
    """Open a file that only root may read, for it contains what probes and hooks wrote."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _uids_of(path: Path) -> set[str]:
    """Return the UIDs whose story the file may be: a UID may contain dots."""
    stem = path.name.removesuffix(".jsonl")
    return {stem, stem.removesuffix(".1")}


def uid_of(what: Event | Instruction) -> str:
    """Return the UID of the pod that an event or instruction is about, "" for none."""
    if uid := getattr(what, "uid", ""):
        return str(uid)
    if isinstance(what, PodObserved):
        return what.observation.uid
    if isinstance(what, PublishAdmitted):
        return what.published.admitted.uid
    if isinstance(what, RecordEvent):
        return what.event.uid
    return str(getattr(what, "pod_uid", "") or getattr(getattr(what, "status", None), "uid", ""))
