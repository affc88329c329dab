"""The word report: what it finds, and that the committed counts may only fall."""

import pytest

from tools.words import area, compare, count, places, risen, without_glossary


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Nobody is told.", ["Nobody", "told"]),
        ("def judge_pods(): ...  # of_earlier_lives", ["judge", "lives"]),
        ("class HeardOf: NOBODY = 1", ["Heard", "NOBODY"]),
        ("the file is written whole", ["whole"]),
        ("it stands in the file, as ever", ["stands", "as ever"]),
        ("the runtime's own word wins", ["own word"]),
        ("everything is level again", ["is level"]),
    ],
)
def test_an_idiom_is_found_in_prose_and_in_identifiers(text: str, words: list[str]) -> None:
    assert [found.word for found in places(text)] == words
    assert count(text) == len(words)


@pytest.mark.parametrize(
    "text",
    [
        "the lifecycle and lifetime of a livez probe; essays; a teller; remedies",
        "the whole pod, a whole node, whole seconds",
        "a key that stands for another; a stand-in that can stand alone",
        "one word in the file; the level is high; the newest version",
    ],
)
def test_ordinary_words_are_no_idioms(text: str) -> None:
    assert not places(text)
    assert count(text) == 0


def test_a_place_names_its_line_and_what_to_write_instead() -> None:
    (found,) = places("first line\nthe node is judged\n")
    assert (found.line, found.word, found.instead) == (2, "judged", "evaluate, decide, check")


def test_the_table_of_words_not_to_use_is_left_out() -> None:
    text = without_glossary("intro\n\n| term | meaning | not |\n|---|---|---|\n| beat | x | told |\n\nsaid\n")
    assert [(found.line, found.word) for found in places(text)] == [(7, "said")]
    assert without_glossary("no table\n\nhere\n") == "no table\n\nhere\n"


def test_files_are_counted_by_the_first_two_directories() -> None:
    assert [area(name) for name in ("README.md", "bus/a.py", "services/podsync/core/a.py")] == [
        ".",
        "bus",
        "services/podsync",
    ]


def test_a_count_may_fall_and_text_may_move_within_a_top_directory() -> None:
    committed = {"services/a": 5, "services/b": 2, "docs": 1}
    assert compare({"services/a": 4, "services/b": 3, "docs": 1}, committed) == ({"services/b"}, {"services/a"})
    assert not risen({"services/a": 3, "services/c": 4}, committed)
    assert risen({"services/a": 5, "services/b": 3, "docs": 0}, committed) == {"services"}
    assert risen({"services/a": 1, "docs": 1, "tools": 1}, committed) == {"tools"}
