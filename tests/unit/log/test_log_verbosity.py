"""Which records show under `-v` and `--vmodule`."""

import logging

import pytest

from shared.log.log_verbosity import Verbosity, verbose


def record(level: int, name: str = "services.x", file: str = "/a/worker.py") -> logging.LogRecord:
    return logging.LogRecord(name, level, file, 12, "text", (), None)


@pytest.mark.parametrize(
    ("level", "needed"),
    [
        (logging.INFO, 0),
        (verbose(0), 0),
        (verbose(1), 1),
        (verbose(3), 3),
        (logging.DEBUG, 4),
        (verbose(5), 5),
        (verbose(9), 9),
        (verbose(10), 9),
    ],
)
def test_a_record_shows_from_its_verbosity_on(level: int, needed: int) -> None:
    for general in range(11):
        rule = Verbosity(general)
        passes = level >= rule.root_level and rule.level_of(record(level)) is not None
        assert passes == (general >= needed), general
    assert Verbosity(10).level_of(record(level)) == needed


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR, logging.CRITICAL])
def test_what_went_wrong_always_shows(level: int) -> None:
    for name in ("services.x", "aiohttp.server"):
        assert Verbosity(0, (("nothing", 9),)).level_of(record(level, name)) == 0


def test_libraries_speak_from_eight_on() -> None:
    talk = record(logging.INFO, "aiohttp.access")
    assert not Verbosity(7).libraries
    assert Verbosity(8).libraries and Verbosity(8).level_of(talk) == 8
    elsewhere = Verbosity(0, (("pleg", 8),))
    assert elsewhere.libraries and elsewhere.level_of(talk) is None


def test_a_file_is_named_by_a_pattern(subtests: pytest.Subtests) -> None:
    for pattern, shows in [
        ("worker", True),
        ("work*", True),
        ("*", True),
        ("w?rker", True),
        ("[v-x]orker", True),
        ("[^a]orker", True),
        ("[^w]orker", False),
        ("wor", False),
        ("Worker", False),
        ("worker.py", False),
        ("a/worker", False),
        (r"\w\orker", True),
        (r"\*", False),
        ("[]worker", False),
        ("[z-a]orker", False),
        ("worke[r", False),
        ("worker\\", False),
    ]:
        with subtests.test(pattern):
            rule = Verbosity(0, ((pattern, 4),))
            assert rule.root_level <= logging.DEBUG
            assert (rule.level_of(record(logging.DEBUG)) == 4) is shows
            assert rule.level_of(record(verbose(5))) is None


def test_the_first_pattern_that_fits_counts_and_lowers_nothing() -> None:
    assert Verbosity(0, (("w*", 2), ("worker", 9))).level_of(record(logging.DEBUG)) is None
    assert Verbosity(5, (("worker", 0),)).level_of(record(logging.DEBUG)) == 4
