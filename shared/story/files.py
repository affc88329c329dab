"""The files of stories, read: `<uid>.jsonl`, and `<uid>.1.jsonl` before it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from shared.story.lines import Kind, Line, Story, is_moment


def directory_of(root_dir: str) -> Path:
    """Where podsync keeps the stories of a kubelet with this root directory."""
    return Path(root_dir) / "bulkhead" / "podsync" / "stories"


def read_story(directory: Path, uid: str) -> Story:
    """The pod's story, empty where there is none. Raises OSError for files that cannot be read."""
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


def _lines(path: Path) -> Iterator[Line]:
    """A line that a kill left in half is left out, and what is no line of ours."""
    try:
        with path.open("rb") as file:
            for raw in file:
                try:
                    line = json.loads(raw)
                except (ValueError, RecursionError):
                    continue
                if isinstance(line, dict) and is_moment(line.get("at", 0.0)):
                    yield line
    except FileNotFoundError:
        return
