"""The files of stories, read: `<uid>.jsonl`, and `<uid>.1.jsonl` before it."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from shared.files.checkpoint import read_record
from shared.story.lines import Kind, Line, Story, is_moment

_TAIL_BYTES = 16 << 10  # a line is shorter
# Reasons of events whose messages name an image.
_IMAGE_EVENTS = ("Pulling", "Pulled", "Failed", "BackOff", "ErrImageNeverPull", "InspectFailed")


def directory_of(root_dir: str) -> Path:
    """Return where podsync keeps the stories of a kubelet with this root directory."""
    return Path(root_dir) / "bulkhead" / "podsync" / "stories"


def read_conditions(root_dir: str, run_dir: str) -> dict[str, Any]:
    """Return the record that status keeps of the node's conditions; {} = none that can be read. Raises OSError."""
    return read_record(Path(root_dir) / "status", Path(run_dir) / "status", "node") or {}


def read_shutdown(root_dir: str, run_dir: str) -> dict[str, Any]:
    """Return the record that podsync keeps of the newest shutdown of the machine; {} = none that can be read. Raises
    OSError."""
    directory, spare = (Path(root_dir) / "bulkhead", Path(run_dir) / "spare")
    return read_record(directory / "podsync" / "node", spare / "podsync" / "node", "shutdown") or {}


def read_story(directory: Path, uid: str) -> Story:
    """Return the pod's story, empty where there is none. Raises OSError for files that cannot be read."""
    older, newer = directory / f"{uid}.1.jsonl", directory / f"{uid}.jsonl"
    lines = [*_lines(older), *_lines(newer)]
    head: Line = next((line for line in reversed(lines) if line.get("what") == Kind.POD), {})
    lines_of_pod = [line for line in lines if line.get("what") != Kind.POD]
    first: Line = next((line for line in lines if line.get("what") == Kind.POD), {})
    named = {key: str(head.get(key) or "") for key in ("name", "namespace", "source")}
    return Story(uid=uid, cut=bool(first.get("part")), lines=lines_of_pod, **named)


def find_stories(directory: Path, wanted: str, namespace: str = "") -> list[Story]:
    """Stories of the pods meant by a UID, a name, or the name of a static pod's manifest; newest first. Raises OSError
    for a directory or files that cannot be read; none where there is no directory."""
    found = []
    for name in _names(directory):
        if not name.endswith(".jsonl") or name.endswith(".1.jsonl"):
            continue
        uid = name.removesuffix(".jsonl")
        head: Line = next(_lines(directory / name), {})
        name, space = str(head.get("name") or ""), str(head.get("namespace") or "")
        by_manifest = head.get("source") not in ("", "api", None) and name.startswith(f"{wanted}-")
        if wanted != uid and (not (name == wanted or by_manifest) or (namespace and space != namespace)):
            continue
        story = read_story(directory, uid)
        found.append((name == wanted or wanted == uid, story.newest, story))
    best = max((exact for exact, _, _ in found), default=False)
    return [story for exact, _, story in sorted(found, key=lambda item: -item[1]) if exact == best]


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - unlike glob, it raises where it may not
    except FileNotFoundError:
        return []


def _lines(path: Path, parts: tuple[bytes, ...] = (b"",)) -> Iterator[Line]:
    """Yield the lines of a file that contain one of `parts`, and its head. A line that a kill left in half is left out,
    and so is any other text."""
    try:
        with path.open("rb") as file:
            yield from _decoded(raw for raw in file if b'"namespace"' in raw or any(part in raw for part in parts))
    except FileNotFoundError:
        return


def _tail(path: Path) -> Iterator[Line]:
    """Yield the complete lines in the last bytes of a file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TAIL_BYTES, 0))
            lines = file.read(_TAIL_BYTES).split(b"\n")
    except FileNotFoundError:
        return
    yield from _decoded(lines if size <= _TAIL_BYTES else lines[1:])


def _decoded(lines: Iterable[bytes]) -> Iterator[Line]:
    for raw in lines:
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict) and is_moment(line.get("at", 0.0)):
            yield line


def newest_lines(directory: Path) -> list[Story]:
    """Return the story of each pod with its newest line alone, the newest first. Raises OSError for what cannot be
    read.
    """
    found = []
    for name in _names(directory):
        if name.endswith(".jsonl") and not name.endswith(".1.jsonl"):
            head: Line = next(_lines(directory / name), {})
            last = [line for line in _tail(directory / name) if line.get("what") != Kind.POD][-1:]
            found.append(_story(name.removesuffix(".jsonl"), head, last))
    return sorted(found, key=lambda story: -story.newest)


def image_lines(directory: Path, text: str) -> list[tuple[Story, Line]]:
    """Return the lines of all stories about images whose names contain `text`, in order of time, each with its pod.
    Raises OSError for what cannot be read.
    """
    found = []
    for name in _names(directory):
        if not name.endswith(".jsonl"):
            continue
        head: Line = {}
        for line in _lines(directory / name, (b'"image"', b'"event"')):
            if line.get("what") == Kind.POD:
                head = line
            elif (named := _image_of(line)) and text in named:
                found.append((_story(name.removesuffix(".jsonl").removesuffix(".1"), head, [line]), line))
    return sorted(found, key=lambda item: float(item[1].get("at") or 0.0))


def _image_of(line: Line) -> str:
    """Return the text of a line that names its image; "" = it is about none."""
    if line.get("what") == Kind.EVENT:
        return str(line.get("message") or "") if line.get("reason") in _IMAGE_EVENTS else ""
    return str(line.get("image") or "")


def _story(uid: str, head: Line, lines: list[Line]) -> Story:
    name, namespace, source = (str(head.get(key) or "") for key in ("name", "namespace", "source"))
    return Story(uid=uid, name=name, namespace=namespace, source=source, lines=lines)
