"""A story as text lines and as JSON data, as `bulkhead explain` prints it and server answers it. Pure."""

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import asdict

from shared.story.lines import Line, Story
from shared.story.restarts import Restart, restarts
from shared.story.sentences import sentence
from shared.text.plain_text import plain
from shared.time.timestamps import MAX_MOMENT, local_text, rfc3339


def story_text(story: Story, since: float = 0.0) -> list[str]:
    """Return the lines not older than `since` (wall-clock seconds), then why containers were restarted."""
    source = f", from {story.source}" if story.source else ""
    lines = [plain(f"{story.namespace}/{story.name} ({story.uid}{source})")]
    if story.cut:
        lines.append("earlier lines have made room for newer ones")
    lines += lines_text(_newer(story, since))
    answers = [answer for answer in restarts(story.lines) if answer.at >= since]
    if answers:
        lines += ["", "why containers were restarted"]
        lines += [_answer(answer) for answer in answers]
    return lines


def lines_text(lines: list[Line], day: str = "") -> list[str]:
    """Return a sentence for each line with its time; before the first one of a day other than `day`, the date."""
    found = []
    for line in lines:
        if not (text := sentence(line)):
            continue
        moment = moment_text(line.get("at"))
        if moment[:10] != day:
            day = moment[:10]
            found.append(day)
        found.append(f"{moment[11:]}  {plain(text)}")
    return found


def story_data(story: Story, since: float = 0.0) -> dict[str, Any]:
    """Return the story as JSON data: its lines not older than `since` (wall-clock seconds), each with its sentence."""
    return {
        "uid": story.uid,
        "name": story.name,
        "namespace": story.namespace,
        "source": story.source,
        "complete": not story.cut,
        "story": [line | {"says": text} for line in _newer(story, since) if (text := sentence(line))],
        "restarts": [asdict(answer) for answer in restarts(story.lines) if answer.at >= since],
    }


def list_text(stories: list[Story], now: float) -> list[str]:
    """Return a table of pods with their newest lines; `now`: wall-clock seconds."""
    rows = [["NAMESPACE", "NAME", "UID", "AGE", "NEWEST"]]
    for story in stories:
        newest = plain(sentence(story.lines[-1])) if story.lines else ""
        rows.append([plain(story.namespace), plain(story.name), story.uid, _age(now - story.newest), newest])
    return _columns(rows)


def list_data(stories: list[Story]) -> list[dict[str, Any]]:
    """Return the same as JSON data; `newest`: wall-clock seconds."""
    keys = ("uid", "namespace", "name", "source", "newest")
    newest = (sentence(story.lines[-1]) if story.lines else "" for story in stories)
    return [
        {key: getattr(story, key) for key in keys} | {"says": text} for story, text in zip(stories, newest, strict=True)
    ]


def image_text(lines: list[tuple[Story, Line]]) -> list[str]:
    """Return a line for each line about an image, with its time and pod."""
    sentences = ((story, line, sentence(line)) for story, line in lines)
    return [
        plain(f"{moment_text(line.get('at'))}  {story.namespace}/{story.name}  {text}")
        for story, line, text in sentences
        if text
    ]


def image_data(lines: list[tuple[Story, Line]]) -> list[dict[str, Any]]:
    """Return the same as JSON data."""
    named = ((line | {"pod": f"{story.namespace}/{story.name}"}, sentence(line)) for story, line in lines)
    return [line | {"says": text} for line, text in named if text]


def node_text(data: dict[str, Any]) -> list[str]:
    """Return the changes of the node's conditions, then the present ones and the newest shutdown of the machine, from
    what `node_data` returns."""
    lines = []
    for one in data["changes"]:
        message = f": {one['message']}" if one.get("message") else ""
        lines.append(
            plain(
                f"{local_text(str(one['at']))}  {one.get('type')} is {one.get('status')}: {one.get('reason')}{message}"
            )
        )
    rows = [["CONDITION", "STATUS", "SINCE", "MESSAGE"]]
    for one in data["conditions"]:
        since = local_text(str(one.get("lastTransitionTime") or ""))
        rows.append(
            [plain(str(text or "")) for text in (one.get("type"), one.get("status"), since, one.get("message"))]
        )
    return [*lines, "", *_columns(rows), *_shutdown_text(data["shutdown"])]


def _shutdown_text(shutdown: dict[str, Any]) -> list[str]:
    """Return what became of the pods in the newest shutdown; nothing where there was none."""
    if not shutdown:
        return []
    over = f"all had their time by {local_text(shutdown['ended'])}" if shutdown["ended"] else "not all had their time"
    lines = ["", f"{local_text(shutdown['began'])}  the machine shut down ({shutdown['signal']}): {over}"]
    if unfinished := shutdown["unfinished"]:
        lines.append(f"pods that had not stopped in time: {', '.join(unfinished)}")
    return list(map(plain, lines))


def node_data(record: dict[str, Any], since: float = 0.0, shutdown: dict[str, Any] | None = None) -> dict[str, Any]:
    """Conditions and their changes not older than `since` (wall-clock seconds), from the record of status; and the
    newest shutdown of the machine, from that of podsync."""
    oldest = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if since else ""
    changes = [one for one in record.get("changes") or [] if isinstance(one, dict) and str(one.get("at")) >= oldest]
    conditions = [one for one in record.get("conditions") or [] if isinstance(one, dict)]
    return {"conditions": conditions, "changes": changes, "shutdown": _shutdown_data(shutdown or {})}


def _shutdown_data(record: dict[str, Any]) -> dict[str, Any]:
    """Return the shutdown with its moments as RFC 3339; {} = there was none."""
    began, unfinished = _moment(record.get("began")), record.get("unfinished")
    if not began:
        return {}
    return {
        "began": began,
        "ended": _moment(record.get("ended")),
        "signal": str(record.get("signal") or ""),
        "unfinished": [str(name) for name in unfinished] if isinstance(unfinished, list) else [],
    }


def _moment(at: Any) -> str:
    """Return seconds since the epoch as RFC 3339, "" for 0 and for what is no moment."""
    return rfc3339(at) if isinstance(at, (int, float)) and 0 < at <= MAX_MOMENT else ""


def moment_text(at: Any) -> str:
    """Return local time to the millisecond; a value outside of the calendar behind a mark in the place of the date."""
    text = local_text(at, milliseconds=True) if isinstance(at, (int, float)) else ""
    return text if text[4:5] == "-" else f"{'?':10} {at}"


def _newer(story: Story, since: float) -> list[Line]:
    return [line for line in story.lines if float(line.get("at") or 0.0) >= since] if since else story.lines


def _answer(answer: Restart) -> str:
    waited = f", after {answer.waited}" if answer.waited else ""
    return plain(
        f"{moment_text(answer.at)[11:]}  {answer.container}, attempt {answer.attempt}: {answer.because}{waited}"
    )


def _columns(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _age(seconds: float) -> str:
    for unit, length, limit in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800)):
        if seconds < limit:
            return f"{max(seconds, 0) / length:.0f}{unit}"
    return f"{seconds / 86_400:.0f}d"
