"""Records of `logging` come out right in both forms."""

import json
import logging
import re
import sys

import pytest

from shared.log.klog import structured
from shared.log.log_lines import JsonFormat, TextFormat, entry_of, form_of


def record(text: object, level: int = logging.INFO, args: tuple[object, ...] = ()) -> logging.LogRecord:
    return logging.LogRecord("x", level, "/srv/services/pleg/worker.py", 12, text, args, None)


def failing(text: str) -> logging.LogRecord:
    try:
        raise ValueError("forged\nE0101 00:00:00.000000 1 x.py:1] line")
    except ValueError:
        return logging.LogRecord("x", logging.ERROR, "/srv/pleg/worker.py", 12, text, (), sys.exc_info())


def as_json(made: logging.LogRecord, verbosity: int = 0) -> dict[str, object]:
    line = JsonFormat("pleg").line(entry_of(made, verbosity))
    assert line.endswith("}\n") and line.count("\n") == 1
    found: dict[str, object] = json.loads(line)
    return found


def test_a_line_of_text() -> None:
    line = TextFormat("pleg").line(entry_of(record("pod %s started", args=("web",))))
    assert re.fullmatch(r"I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ pleg/worker\.py:12\] pod web started\n", line)


@pytest.mark.parametrize(
    ("level", "letter", "verbosity"),
    [(logging.DEBUG, "I", 4), (logging.WARNING, "W", 0), (logging.ERROR, "E", None), (logging.CRITICAL, "F", None)],
)
def test_the_severity(level: int, letter: str, verbosity: int | None) -> None:
    entry = entry_of(record("x", level), verbosity or 0)
    assert TextFormat("pleg").line(entry).startswith(letter)
    assert as_json(record("x", level), verbosity or 0).get("v") == verbosity


@pytest.mark.parametrize("as_argument", [False, True])
def test_a_message_with_fields_in_both_forms(as_argument: bool) -> None:
    message = structured("100 % done", pod="ns/web", n=2)
    made = record("%s", args=(message,)) if as_argument else record(message)
    assert TextFormat("pleg").line(entry_of(made)).endswith('] "100 % done" pod="ns/web" n=2\n')
    found = as_json(made)
    assert isinstance(found.pop("ts"), float)
    assert found == {
        "caller": "pleg/worker.py:12", "msg": "100 % done", "v": 0, "logger": "pleg", "pod": "ns/web", "n": 2,
    }  # fmt: skip


def test_a_traceback_is_part_of_its_record() -> None:
    first, *further = TextFormat("pleg").line(entry_of(failing("it failed"))).splitlines()
    assert first.endswith("] it failed") and all(line.startswith("\t") for line in further)
    found = as_json(failing("it failed"))
    assert str(found["err"]).startswith("ValueError: forged") and "Traceback" in str(found["stacktrace"])


@pytest.mark.parametrize("message", ["%d", structured("%d")])
def test_arguments_that_do_not_fit_are_shown(message: str) -> None:
    assert "arguments do not fit" in TextFormat("pleg").line(entry_of(record(message, args=("x",))))


@pytest.mark.long
def test_what_cannot_be_shown_is_no_failure() -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError

    assert "arguments do not fit" in TextFormat("pleg").line(entry_of(record("%s", args=(Mute(),))))


@pytest.mark.parametrize("name", ["text", "json"])
def test_a_long_record_fits_into_a_pipe(name: str) -> None:
    form = form_of(name, "pleg")
    pieces = form.pieces(form.line(entry_of(record("x" * 10000))), 4096)
    assert len(pieces) == (3 if name == "text" else 1)
    assert all(len(piece) <= 4096 and piece.endswith(b"\n") for piece in pieces)
    assert form.pieces("short\n", 4096) == [b"short\n"]
