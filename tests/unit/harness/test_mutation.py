"""The mutants of the nightly run: each changes one condition, and the file stays a program."""

import ast

import pytest

from tests.support.source.mutation import cores, find_tests, mutants_of, shells

SOURCE = b"""
def decide(a, b, c):
    if a < b and not c:
        return "\xc3\xa9" in a if b else None
    while a:
        a = b is None or c == 1
    match b:
        case int() if not a:
            return [one for one in c if one.x]
"""


def test_each_condition_is_changed_once_in_each_way() -> None:
    mutants = list(mutants_of("core.py", SOURCE))
    texts = {mutant.text for mutant in mutants}
    assert {"(a <= b)", "(a < b or not c)", "(a < b)", "(not c)", "(c)", "(not (b))", "(not (a))"} <= texts
    assert {"('é' not in a)", "(b is not None)", "(c != 1)", "(b is None and c == 1)"} <= texts
    assert {"(not (one.x))", "(a)"} <= texts
    for mutant in mutants:
        changed = mutant.apply(SOURCE)
        assert changed != SOURCE
        ast.parse(changed)


@pytest.mark.long
def test_every_core_has_find_tests_its_own() -> None:
    files = cores()
    assert len(files) > 100
    assert not [file for file in files if not find_tests(file)]


@pytest.mark.long
def test_every_adapter_and_controller_has_tests() -> None:
    files = shells()
    assert {
        "shared/files/atomic.py",
        "services/volume/adapters/mounts.py",
        "services/status/controllers/lease.py",
    } <= set(files)
    assert not [file for file in files if not find_tests(file)]
