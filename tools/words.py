"""The word report of `make check`: idioms that a newcomer stumbles over, counted by directory; a count may only fall.

Prints file:line, the word and what to write instead. `tools/words.toml` holds the committed counts."""

import argparse
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parent.parent
COUNTS = "tools/words.toml"
# Words, also as a part of an identifier -> what to write instead.
INSTEAD = {
    "nobody": "no process, no client, none",
    "somebody anybody everybody whoever": "name the process, client or user",
    "life lives": "process, run, start; lifetime of a process",
    "tell tells told telling": "report, publish, send; distinguish",
    "say says said saying": "report, state, contain; according to",
    "hear hears heard hearing": "receive, follow",
    "mend mends mended mending": "repair, correct",
    "judge judges judged judging judgement judgements judgment": "evaluate, decide, check",
    "wants": "needs, requests, expects",
    "forgive forgives forgiven forgiving forgave": "ignore, reset, do not count",
    "dice": "rng, random generator, jitter",
    "blame blames blamed blaming": "report as the cause",
    "patience patient patiently": "timeout, deadline",
    "vouch vouches vouched": "sign, accept",
    "anew": "again, new",
}
_WHOLE = (  # "whole" before these is a term
    "numbers?|seconds?|minutes?|hours?|pages?|nanoseconds?|CPUs?|percentage|divisors?|lines?|bytes?|MiB|threshold|"
    "random|cores?|sockets?|NUMA"
)
# Regular expressions, each with the word that is in every match; not matched in identifiers -> what to write instead.
PHRASES = {
    ("stands", r"stands\b(?! (?:alone|for)\b)"): "is, has, appears",
    ("stand", r"stand\b(?!-| (?:alone|for)\b)"): "be, appear",
    ("stood", r"stood\b"): "was, had",
    ("word", r"(?:(?:own|last|older|newer|'s) word\b(?! (?:in|after|before|as)\b)|word of\b)"): "report, value, answer",
    ("ever", r"as ever\b"): "unchanged, as before",
    ("come", r"(?:is|are|be|was|were) come by\b"): "chosen, obtained",
    ("level", r"(?:is|are|be|was|were|everything) level\b"): "in sync",
    ("news", r"(?:no|old) news\b"): "no change, stale observation",
    ("laid", r"laid down\b"): "defined, specified",
    ("lays", r"lays down\b"): "defines, specifies",
    (
        "whole",
        rf"(?<!the )(?<!a )(?<!its )(?<!their )(?<!this )whole\b(?! (?:{_WHOLE})\b)",
    ): "complete, entire, unchanged",
}
# Names that cannot change: settings of systemd, a user of Linux, fields of saved records and of printed JSON.
FIXED = re.compile(r'Wants=|"Wants"|\.wants/|\bnobody:|"judged(?:_in)?"|"says"|"life"')
# Published text, licences, hashes, foreign data, and the lists of words themselves.
LEFT_OUT = ("CHANGELOG.md", "requirements", "tests/recordings/", "tools/words.", "tests/unit/tools/test_words.py")
ENDINGS = (".py", ".md", ".toml", ".conf", ".yaml", ".service", "Makefile")

_WORD = {word: instead for words, instead in INSTEAD.items() for word in words.split()}
_PHRASE = {word: re.compile(rf"(?<!\w){phrase}", re.IGNORECASE) for word, phrase in PHRASES}
_PHRASE_INSTEAD = {word: instead for (word, _), instead in PHRASES.items()}
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")  # of a text, of snake_case and of CamelCase


class Found(NamedTuple):
    """One place: its line, the word as written, and what to write instead."""

    line: int
    word: str
    instead: str


def count(text: str) -> int:
    """How many idioms a text has. Linear in its length."""
    parts = Counter(_PARTS.findall(text))
    found = sum(number for part, number in parts.items() if part.lower() in _WORD)
    present = {part.lower() for part in parts} & set(_PHRASE)
    return found + sum(len(_PHRASE[word].findall(line)) for word in present for line in _lines_with(word, text))


def places(text: str) -> list[Found]:
    """Every idiom of a text with its line."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for part in _PARTS.findall(line):
            if instead := _WORD.get(part.lower()):
                found.append(Found(number, part, instead))
        for word, phrase in _PHRASE.items():
            found += [Found(number, match, _PHRASE_INSTEAD[word]) for match in phrase.findall(line)]
    return found


def without_glossary(text: str) -> str:
    """The text with blank lines in place of the table of CONTRIBUTING.md that lists words not to use."""
    before, head, rest = text.partition("\n| term | meaning | not |\n")
    table, blank, after = rest.partition("\n\n")
    return before + "\n" * (head + table).count("\n") + blank + after if head else text


def area(name: str) -> str:
    """The directory a file is counted under: the first two parts of its path, or "." for the root."""
    parts = name.split("/")[:-1]
    return "/".join(parts[:2]) or "."


def compare(counts: dict[str, int], committed: dict[str, int]) -> tuple[set[str], set[str]]:
    """The areas that have more idioms than committed, and those that have fewer."""
    areas = set(counts) | set(committed)
    more = {one for one in areas if counts.get(one, 0) > committed.get(one, 0)}
    return more, {one for one in areas if counts.get(one, 0) < committed.get(one, 0)}


def risen(counts: dict[str, int], committed: dict[str, int]) -> set[str]:
    """The top directories that have more idioms than committed: text may move within one."""
    sums = Counter({one.split("/")[0]: 0 for one in counts})
    for one in {*counts, *committed}:
        sums[one.split("/")[0]] += counts.get(one, 0) - committed.get(one, 0)
    return {top for top, change in sums.items() if change > 0}


def _lines_with(word: str, text: str) -> list[str]:
    return [line for line in text.splitlines() if word in line.lower()]


def _texts(checkout: Path) -> dict[str, str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=checkout,
        check=True,
        capture_output=True,
        text=True,
    )
    names = {name for name in listed.stdout.splitlines() if name.endswith(ENDINGS) and not name.startswith(LEFT_OUT)}
    return {
        name: FIXED.sub("", without_glossary((checkout / name).read_text()))
        for name in sorted(names)
        if (checkout / name).is_file()
    }


def _added(where: str) -> dict[str, set[int]]:
    """File -> numbers of its lines that are new since the counts were committed."""
    git = ["git", "-C", str(CHECKOUT)]
    since = subprocess.run([*git, "log", "-1", "--format=%H", "--", COUNTS], check=True, capture_output=True, text=True)
    diff = subprocess.run(
        [*git, "diff", "--unified=0", since.stdout.strip() or "HEAD", "--", where],
        check=True,
        capture_output=True,
        text=True,
    )
    lines: dict[str, set[int]] = {}
    name = ""
    for line in diff.stdout.splitlines():
        if line.startswith("+++ "):
            name = line[6:]
        elif hunk := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            first, number = int(hunk[1]), int(hunk[2] or 1)
            lines.setdefault(name, set()).update(range(first, first + number))
    return lines


def _as_toml(counts: dict[str, int]) -> str:
    rows = "".join(f'"{one}" = {number}\n' for one, number in sorted(counts.items()) if number)
    return "# Idioms by directory (tools/words.py); `python -m tools.words --write` writes this file.\n" + rows


def main() -> None:
    """Compare with the committed counts: exit 1 if one has risen, in CI also if one has fallen. Or list, or write."""
    parser = argparse.ArgumentParser(prog="python -m tools.words", description=__doc__)
    parser.add_argument("paths", nargs="*", help="list every idiom below these paths instead")
    parser.add_argument("--write", action="store_true", help="write the counts; refused where their sum has risen")
    given = parser.parse_args()
    texts, file = _texts(CHECKOUT), CHECKOUT / COUNTS
    if given.paths:
        for name, text in texts.items():
            if name.startswith(tuple(given.paths)):
                print("".join(f"{name}:{one.line}: {one.word}: {one.instead}\n" for one in places(text)), end="")
        return
    counts: Counter[str] = Counter()
    for name, text in texts.items():
        counts[area(name)] += count(text)
    committed = tomllib.loads(file.read_text()) if file.exists() else {}
    if given.write:
        if file.exists() and counts.total() > sum(committed.values()):
            sys.exit(
                f"{COUNTS}: {counts.total()} idioms, committed are {sum(committed.values())}: replace the new ones"
            )
        file.write_text(_as_toml(counts))
        return
    print(f"{counts.total()} idioms, committed are {sum(committed.values())}")
    more, fewer = compare(counts, committed)
    tops = risen(counts, committed)
    for one in sorted(one for one in more if one.split("/")[0] in tops):
        print(f"{one}: {counts[one]}, committed are {committed.get(one, 0)}; in lines added since:")
        for name, numbers in _added(one).items():
            found = [place for place in places(texts.get(name, "")) if place.line in numbers]
            print("".join(f"  {name}:{place.line}: {place.word}: {place.instead}\n" for place in found), end="")
    if fewer and not tops:
        print(f"fewer than committed in {', '.join(sorted(fewer))}: `python -m tools.words --write`")
    strict = os.environ.get("CI") == "true"  # elsewhere a branch may lower a count and commit it with a later change
    sys.exit(1 if tops or (fewer and strict) else 0)


if __name__ == "__main__":
    main()
