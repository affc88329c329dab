"""Decides which test files one process runs, and in which order. Pure but for `find_files`, which lists a directory.

A file that takes long has a process of its own. Short files of one level share a process, for each process costs two
to three seconds of a core until it has imported the product. What shares one node or one machine stays in one process,
and files that can have one control plane after the other share a process for longer than others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

TOGETHER = (
    "tests/e2e/behaviour",
    "tests/e2e/joined",
    "tests/machine",
)  # the tests of such a directory share what they run on
# Levels whose tests need a core all the time, while those of the others wait for real time about half of it.
_COMPUTING = ("unit", "service", "simulation", "architecture")
MIN_ITEM_SECONDS = 110.0  # short files are put together until they are expected to take so long
MIN_LENT_SECONDS = 240.0  # the same for files that can have one control plane after the other
# What a file is expected to take whose duration is not known, in seconds.
EXPECTED = {
    "unit": 0.2, "service": 0.4, "architecture": 1.5, "simulation": 3.0, "process": 4.0, "e2e": 8.0,
    "behaviour": 15.0, "machine": 200.0,
}  # fmt: skip
_OF_OTHERS = 1.0


@dataclass(frozen=True)
class Item:
    """What one process of pytest runs: files of one level in the order of their paths; `seconds` are expected.

    `again`: NAME=VALUE of the environment for tests that run once more with it, "" for the first run; `marks`: which
    tests of the files run, an expression as for pytest."""

    level: str
    files: tuple[str, ...]
    seconds: float
    again: str = ""
    marks: str = ""

    @property
    def computes(self) -> bool:
        """Return whether its tests need a core all the time."""
        return self.level in _COMPUTING

    @property
    def name(self) -> str:
        """Return how the item is shown: its file, or its first file and how many follow."""
        further = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        return f"{self.files[0]}{further}{f' with {self.again}' if self.again else ''}"


def level_of(file: str) -> str:
    """Return the level of a test file, the first directory below `tests`, or "other" for a file elsewhere."""
    parts = Path(file).parts
    return parts[1] if len(parts) > 2 and parts[0] == "tests" else "other"


def run_of(file: str, again: str) -> str:
    """Return the name under which durations have a file: itself, or with what it runs once more with."""
    return f"{file} with {again}" if again else file


def expected_seconds(file: str, durations: Mapping[str, float], again: str = "") -> float:
    """Return the last duration of the file in seconds, or what a file of its directory takes. `again`: of its run with
    that variable, which has some of its tests."""
    if (known := durations.get(run_of(file, again))) is not None:
        return known
    return next((EXPECTED[part] for part in reversed(Path(file).parts[:-1]) if part in EXPECTED), _OF_OTHERS)


def find_files(paths: Iterable[str], root: Path) -> list[str]:
    """Return the test files at or below `paths`, relative to `root` where they are below it, each once and in order.

    Raises FileNotFoundError for a path that does not exist.
    """
    found: set[Path] = set()
    for path in paths:
        complete = (root / path).resolve()
        if not complete.exists():
            raise FileNotFoundError(path)
        found |= {complete} if complete.is_file() else set(complete.rglob("test_*.py"))
    return sorted(str(file.relative_to(root)) if file.is_relative_to(root) else str(file) for file in found)


def longest_first(items: Iterable[Item]) -> list[Item]:
    """Return the items in the order in which they are taken."""
    return sorted(items, key=lambda item: (-item.seconds, item.files, item.again))


def take(items: list[Item], *, computing: bool) -> Item:
    """Remove the next item for a worker and return it: the first that computes, or the first that mostly waits; where
    none of the kind is left, the first of the others. Raises IndexError without items."""
    fits = (number for number, item in enumerate(items) if item.computes == computing)
    return items.pop(next(fits, 0))


def plan(
    files: Iterable[str],
    durations: Mapping[str, float],
    *,
    lent: Mapping[str, str] | None = None,
    again: str = "",
    marks: str = "",
) -> list[Item]:
    """Return the items that run these tests of `files`, the one that is expected to take longest first.

    `lent`: those of the files that can have one control plane after the other, and its kind."""
    open_items: dict[tuple[str, str], list[str]] = {}  # what has to stay together or is still short -> its files
    items: list[Item] = []

    def seconds_of(members: Iterable[str]) -> float:
        return sum(expected_seconds(file, durations, again) for file in members)

    def close(key: tuple[str, str]) -> None:
        members = tuple(open_items.pop(key))
        items.append(Item(level_of(members[0]), members, seconds_of(members), again, marks))

    for file in sorted(files):
        shared = next((place for place in TOGETHER if Path(file).is_relative_to(place)), None)
        key = (shared, "") if shared else (level_of(file), (lent or {}).get(file, ""))
        enough = MIN_LENT_SECONDS if key[1] else MIN_ITEM_SECONDS
        seconds = expected_seconds(file, durations, again)
        if shared is None and seconds >= enough:
            items.append(Item(level_of(file), (file,), seconds, again, marks))
            continue
        open_items.setdefault(key, []).append(file)
        if shared is None and seconds_of(open_items[key]) >= enough:
            close(key)
    for key in list(open_items):
        close(key)
    return longest_first(items)
