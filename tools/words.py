"""The word check of `make check`: refuses idioms that a newcomer stumbles over.

Prints file:line, the word and what to write instead."""

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parent.parent
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
FIXED = re.compile(r'Wants=|"Wants"|\.wants/|\bnobody:|["`]says["`]|"life"')
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


def places(text: str) -> list[Found]:
    """Every idiom of a text with its line. Linear in its length."""
    parts = {part.lower() for part in _PARTS.findall(text)}
    words, phrases = parts & set(_WORD), parts & set(_PHRASE)
    if not words and not phrases:
        return []
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for part in _PARTS.findall(line):
            if part.lower() in words:
                found.append(Found(number, part, _WORD[part.lower()]))
        for word in (word for word in _PHRASE if word in phrases):
            found += [Found(number, match, _PHRASE_INSTEAD[word]) for match in _PHRASE[word].findall(line)]
    return found


def without_glossary(text: str) -> str:
    """The text with blank lines in place of the table of CONTRIBUTING.md that lists words not to use."""
    before, head, rest = text.partition("\n| term | meaning | not |\n")
    table, blank, after = rest.partition("\n\n")
    return before + "\n" * (head + table).count("\n") + blank + after if head else text


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


def main() -> None:
    """List every idiom of the checkout, or of the files below the paths given; exit 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m tools.words", description=__doc__)
    parser.add_argument("paths", nargs="*", help="only files below these paths")
    paths = tuple(parser.parse_args().paths)
    lines = [
        f"{name}:{one.line}: {one.word}: {one.instead}"
        for name, text in _texts(CHECKOUT).items()
        if not paths or name.startswith(paths)
        for one in places(text)
    ]
    print("\n".join([*lines, f"{len(lines)} idioms"]))
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
