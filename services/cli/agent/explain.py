"""`bulkhead explain` prints from the agent's records what happened to a pod, an image or the node, and why.

It works while the agent is down."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.cli.terminal.output import dump, write_report
from services.cli.terminal.table import shorten_text, terminal_width
from shared.story.files import directory_of, find_stories, image_lines, newest_lines, read_conditions, read_shutdown
from shared.story.text import (
    image_data,
    image_text,
    list_data,
    list_text,
    node_data,
    node_text,
    story_data,
    story_text,
)
from shared.text.plain_text import plain

Write = Callable[[str], None]


def explain_pod(
    root_dir: str,
    pod: str,
    namespace: str,
    form: str,
    out: Write,
    err: Write,
    *,
    since: float = 0.0,
    follow: bool = False,
) -> int:
    """Print the story of `pod` (name, namespace/name or UID) as text or JSON; of the last `since` seconds, 0 = all.
    With `follow` print new lines until Ctrl-C. Return the exit code: 0, or 1 if there is none."""
    space, _, name = pod.rpartition("/")
    directory = directory_of(root_dir)
    begin = time.time() - since if since else 0.0
    try:
        found = find_stories(directory, name, space or namespace)
        if not found:
            err(_missing(directory, name, space or namespace))
            return 1
        story = found[0]
        if form != "text":
            out(dump(story_data(story, begin), form))
            return 0
        for line in story_text(story, begin):
            out(line)
        for other in found[1:]:
            earlier = other.namespace == story.namespace
            which = "an earlier pod of this name" if earlier else f"{other.namespace}/{other.name}"
            err(plain(f"note: there is {which} as well: bulkhead explain {other.uid}"))
        if follow:
            from services.cli.agent.story_follow import follow_story

            follow_story(directory, story, out)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        return _unreadable(directory, error, err)
    return 0


def list_stories(root_dir: str, namespace: str, form: str, out: Write, err: Write, *, since: float = 0.0) -> int:
    """Print the pods that have a story, the one with the newest line first; `since`: seconds back, 0 = all."""
    directory, now = directory_of(root_dir), time.time()
    try:
        stories = newest_lines(directory)
    except OSError as error:
        return _unreadable(directory, error, err)
    found = [
        story
        for story in stories
        if (not namespace or story.namespace == namespace) and (not since or story.newest >= now - since)
    ]
    if form == "text" and not found:
        where = f" in namespace {namespace}" if namespace else ""
        err(f"{directory}: no record of a pod{where} (the agent has not run one, or name --root-dir)")
        return 0
    return _print(form, list_data(found), list_text(found, now), out)


def explain_image(root_dir: str, image: str, form: str, out: Write, err: Write, *, since: float = 0.0) -> int:
    """Print what pods did with the images whose names contain `image`; `since`: seconds back, 0 = all."""
    directory = directory_of(root_dir)
    try:
        found = image_lines(directory, image)
    except OSError as error:
        return _unreadable(directory, error, err)
    if since:
        found = [(story, line) for story, line in found if _at(line) >= time.time() - since]
    if form == "text" and not image_text(found):
        named = f" with {image!r} in its name" if image else ""
        err(f"no record of an image{named} (bulkhead explain lists the pods that have a record)")
        return 1
    return _print(form, image_data(found), image_text(found), out)


def explain_node(root_dir: str, run_dir: str, form: str, out: Write, err: Write, *, since: float = 0.0) -> int:
    """Print the changes of the node's conditions with their reasons; `since`: seconds back, 0 = all."""
    try:
        record, shutdown = read_conditions(root_dir, run_dir), read_shutdown(root_dir, run_dir)
    except OSError as error:
        return _unreadable(Path(root_dir), error, err)
    if not record:
        err(f"{root_dir}: no record of the node's conditions (the agent has not run yet, or name --root-dir)")
        return 1
    data = node_data(record, time.time() - since if since else 0.0, shutdown)
    return _print(form, data, node_text(data), out)


def _print(form: str, data: Any, lines: list[str], out: Write) -> int:
    write_report(form, data, (shorten_text(line, terminal_width()) for line in lines), out)
    return 0


def _unreadable(directory: Path, error: OSError, err: Write) -> int:
    err(f"{directory}: cannot be read: {error.strerror} (run it as the user of the agent, root)")
    return 1


def _missing(directory: Path, name: str, namespace: str) -> str:
    if not directory.exists():
        return f"{directory}: no such directory (name the agent's root directory with --root-dir)"
    where = f" in namespace {namespace}" if namespace else ""
    return f"pod {name}{where}: no record in {directory} (bulkhead explain lists the pods that have one)"


def _at(line: Any) -> float:
    return float(line.get("at") or 0.0)
