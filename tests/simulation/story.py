"""What happened in one run: lines of virtual time, who and what. Different runs have different digests."""

import hashlib
from collections.abc import Callable


class Story:
    """`add` keeps a line for people; `note` goes into the digest alone. Both must be the same for the same seed."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.lines: list[str] = []
        self._now = now
        self._began = now()
        self._digest = hashlib.sha256()

    @property
    def seconds(self) -> float:
        """Virtual seconds since the beginning."""
        return self._now() - self._began

    def add(self, who: str, what: str) -> None:
        """Add a line for people."""
        line = f"{self.seconds:10.4f}  {who:<10} {what}"
        self.lines.append(line)
        self._digest.update(line.encode())

    def note(self, who: str, what: str, content: bytes = b"") -> None:
        """Something too small to be read."""
        self._digest.update(f"{self.seconds:.9f} {who} {what} ".encode())
        self._digest.update(content)

    def digest(self) -> str:
        """The digest of all lines and notes."""
        return self._digest.hexdigest()

    def numbered(self) -> list[str]:
        """The lines with numbers."""
        return [f"{number:4}  {line}" for number, line in enumerate(self.lines, 1)]
