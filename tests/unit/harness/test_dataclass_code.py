"""The methods of dataclasses are those that Python makes, and are compiled once for all processes of the tests."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.queue.dataclass_code import read_codes, write_codes

PROGRAM = """
import builtins, dataclasses, json, sys
compiled = []
def counted(text, *rest, compile=compile, **options):
    compiled.extend([text] * ("def __create_fn__" in str(text)))  # of a dataclass
    return compile(text, *rest, **options)
builtins.compile = counted
from tests.queue.dataclass_code import keep_codes
keep_codes()

@dataclasses.dataclass(frozen=True, order=True)
class Value:
    number: int
    names: tuple[str, ...] = ()

@dataclasses.dataclass
class Other:
    number: int
    names: list[str] = dataclasses.field(default_factory=list)

first, second = Value(1, ("a",)), Value(number=2)
try:
    first.number = 3
except dataclasses.FrozenInstanceError as error:
    refused = str(error)
left, right = Other(1), Other(1)
left.names.append("a")
shown = [repr(first), first < second, first == Value(1, ("a",)), hash(first) == hash(Value(1, ("a",))), refused]
json.dump([shown + [repr(left), repr(right), left == right], len(compiled)], sys.stdout)
"""


def run(cache: Path) -> tuple[list[object], int]:
    """What the program's dataclasses do, and how many texts it has compiled."""
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        check=True,
        capture_output=True,
    )
    shown, compiled = json.loads(answer.stdout)
    return shown, compiled


def test_a_second_process_compiles_nothing_and_its_dataclasses_do_the_same(tmp_path: Path) -> None:
    shown, compiled = run(tmp_path)
    assert shown == [
        *("Value(number=1, names=('a',))", True, True, True, "cannot assign to field 'number'"),
        *("Other(number=1, names=['a'])", "Other(number=1, names=[])", False),
    ]
    assert compiled > 0
    assert run(tmp_path) == (shown, 0)


def test_a_file_that_is_damaged_or_missing_counts_as_empty_and_is_replaced(tmp_path: Path) -> None:
    shown, compiled = run(tmp_path)
    (file,) = (tmp_path / "bulkhead").iterdir()
    for content in (b"", b"damaged", file.read_bytes()[:100]):
        file.write_bytes(content)
        assert read_codes(file) == {}
        assert run(tmp_path) == (shown, compiled)
        assert run(tmp_path) == (shown, 0)


def test_what_other_processes_have_written_meanwhile_stays(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "codes"
    codes = {text: compile(text, "<string>", "exec") for text in ("a = 1", "b = 2")}
    for text, code in codes.items():
        write_codes(file, {text: code})
    assert read_codes(file) == codes
    assert [found.name for found in file.parent.iterdir()] == [file.name]


def test_where_nothing_can_be_written_the_texts_are_compiled_each_time(tmp_path: Path) -> None:
    (tmp_path / "bulkhead").write_text("no directory")
    shown, compiled = run(tmp_path)
    assert compiled > 0
    assert run(tmp_path) == (shown, compiled)
