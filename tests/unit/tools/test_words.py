"""The word check: what it finds and what it leaves out."""

import pytest

from tools.words import FIXED, places, without_glossary


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


def test_a_place_names_its_line_and_what_to_write_instead() -> None:
    (found,) = places("first line\nthe node is judged\n")
    assert (found.line, found.word, found.instead) == (2, "judged", "evaluate, decide, check")


def test_the_table_of_words_not_to_use_is_left_out() -> None:
    text = without_glossary("intro\n\n| term | meaning | not |\n|---|---|---|\n| beat | x | told |\n\nsaid\n")
    assert [(found.line, found.word) for found in places(text)] == [(7, "said")]
    assert without_glossary("no table\n\nhere\n") == "no table\n\nhere\n"


def test_names_that_cannot_change_are_left_out() -> None:
    text = 'Wants=dbus.socket, {"says": 1}, nobody:x:65534; nobody wants it'
    assert [found.word for found in places(FIXED.sub("", text))] == ["nobody", "wants"]
