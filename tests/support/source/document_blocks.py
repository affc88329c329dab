"""The executable blocks of a document: a test runs the code that follows the comment `<!-- run -->`. The block after
`<!-- prints -->` is what it prints: `…` in a line is any text, a line `…` is any lines.
"""

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^<!-- (run|prints)(?:: ([^>]*?))? -->\n+```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """Commands for a shell; `how` is the text after the colon of the comment, `prints` the expected output or None."""

    commands: str
    how: str = ""
    prints: str | None = None


def blocks(document: Path) -> list[Block]:
    """Return the executable blocks, in their order. Every comment must have its block."""
    text = document.read_text(encoding="utf-8")
    found: list[Block] = []
    for kind, how, content in _BLOCK.findall(text):
        if kind == "run":
            found.append(Block(content, how))
        else:
            assert found and found[-1].prints is None, f"output without commands: {content}"
            found[-1] = Block(found[-1].commands, found[-1].how, content)
    marked = len(re.findall(r"^<!-- (?:run|prints)\b", text, re.MULTILINE))
    assert marked == len(_BLOCK.findall(text)), f"{document}: a comment without a block of code"
    return found


def fits(expected: str, printed: str) -> bool:
    """Return whether a command printed what the document shows. Runs of spaces equal one space."""
    parts = []
    for line in expected.splitlines():
        words = " ".join(line.split())
        parts.append(r"(?:.*\n)*?" if words == "…" else ".*?".join(map(re.escape, words.split("…"))) + r"\n")
    text = "".join(f"{' '.join(line.split())}\n" for line in printed.splitlines())
    return re.fullmatch("".join(parts), text) is not None
