"""`bulkhead explain -f` prints the lines of a pod's story as they are written."""

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from asyncinotify import Inotify, Mask

from shared.story.files import read_story
from shared.story.lines import Line, Story
from shared.story.text import lines_text, moment_text


def follow_story(directory: Path, story: Story, out: Callable[[str], None]) -> NoReturn:
    """Print the lines that follow those of `story`, until Ctrl-C. Raises OSError."""
    printed = story.lines
    with Inotify() as inotify:
        inotify.add_watch(directory, Mask.MODIFY | Mask.CREATE | Mask.MOVED_TO)
        while True:
            lines = read_story(directory, story.uid).lines
            new = lines[len(printed) :] if lines[: len(printed)] == printed else _after(lines, printed)
            for text in lines_text(new, moment_text(printed[-1].get("at"))[:10] if printed else ""):
                out(text)
            printed = lines
            inotify.sync_get()


def _after(lines: list[Line], printed: list[Line]) -> list[Line]:
    """Return the lines after the newest printed one; all lines if that one was dropped from the story."""
    newest = next((number for number in range(len(lines), 0, -1) if printed and lines[number - 1] == printed[-1]), 0)
    return lines[newest:]
