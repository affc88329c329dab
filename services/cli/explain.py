"""`bulkhead explain`: prints what happened to a pod and why, from the agent's record. Works while the agent is down."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from shared.story.files import directory_of, find_stories
from shared.story.lines import Story
from shared.story.restarts import Restart, restarts
from shared.story.sentences import sentence

Write = Callable[[str], None]


def explain_pod(root_dir: str, pod: str, namespace: str, form: str, out: Write, err: Write) -> int:
    """Print the story of `pod` (name, namespace/name or UID) as text or JSON. Return the exit code: 0, or 1 if there is
    none."""
    space, _, name = pod.rpartition("/")
    directory = directory_of(root_dir)
    try:
        found = find_stories(directory, name, space or namespace)
    except OSError as error:
        err(f"{directory}: cannot be read: {error.strerror} (run it as the user of the agent, root)")
        return 1
    if not found:
        if directory.exists():
            where = f" in namespace {space or namespace}" if space or namespace else ""
            err(
                f"pod {name}{where}: no story in {directory} (a name, namespace/name or UID of a pod this node has had)"
            )
        else:
            err(f"{directory}: no such directory (name the agent's root directory with --root-dir)")
        return 1
    story = found[0]
    if form == "json":
        out(json.dumps(_as_json(story), indent=2))
        return 0
    for line in _as_text(story):
        out(line)
    for other in found[1:]:
        which = (
            "an earlier pod of this name" if other.namespace == story.namespace else f"{other.namespace}/{other.name}"
        )
        err(_plain(f"note: there is {which} as well: bulkhead explain {other.uid}"))
    return 0


def _as_text(story: Story) -> list[str]:
    source = f", from {story.source}" if story.source else ""
    lines = [_plain(f"{story.namespace}/{story.name} ({story.uid}{source})")]
    if story.cut:
        lines.append("earlier lines have made room for newer ones")
    day = ""
    for line in story.lines:
        if not (text := sentence(line)):
            continue
        moment = _moment(line.get("at"))
        if moment[:10] != day:
            day = moment[:10]
            lines.append(day)
        lines.append(f"{moment[11:]}  {_plain(text)}")
    answers = restarts(story.lines)
    if answers:
        lines += ["", "why containers were restarted"]
        lines += [_answer(answer) for answer in answers]
    return lines


def _answer(answer: Restart) -> str:
    waited = f", after {answer.waited}" if answer.waited else ""
    return _plain(f"{_moment(answer.at)[11:]}  {answer.container}, attempt {answer.attempt}: {answer.because}{waited}")


def _as_json(story: Story) -> dict[str, Any]:
    return {
        "uid": story.uid,
        "name": story.name,
        "namespace": story.namespace,
        "source": story.source,
        "complete": not story.cut,
        "story": [line | {"says": text} for line in story.lines if (text := sentence(line))],
        "restarts": [vars(answer) for answer in restarts(story.lines)],
    }


def _plain(text: str) -> str:
    """Return the text with control characters escaped: a container may have written part of it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _moment(at: Any) -> str:
    """Return local time to the millisecond; a value outside of the calendar as it is."""
    try:
        return datetime.fromtimestamp(float(at)).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (TypeError, ValueError, OverflowError, OSError):
        return f"{'?':10} {at}"
