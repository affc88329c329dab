"""docs/specification.md has the numbers of the tests that it names, and of the benchmarks that are recorded."""

import ast
import re

import pytest

from tests.architecture.checkout import CHECKOUT, text_of, tree_of

PAGE = "docs/specification.md"
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in text_of(PAGE).splitlines()
    if line.startswith("|") and "`" in line.split("|")[-2]
]
PROMISES = [row for row in ROWS if len(row) == 3]
MEASURED = [row for row in ROWS if len(row) == 4]
UNITS = {"KiB": 2**10, "MiB": 2**20}


def value_of(node: ast.expr) -> float:
    """The number, a product or a shift of numbers; how slow the machine is counts as 1."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left, ast.Mult(), ast.Name("SLOWNESS")):
            return value_of(left)
        case ast.BinOp(left, ast.LShift(), right):
            return int(value_of(left)) << int(value_of(right))
    raise ValueError(f"{ast.unparse(node)} is not a number")


@pytest.mark.parametrize(("promise", "number", "kept_by"), PROMISES)
def test_a_promise_is_the_limit_of_the_test_that_keeps_it(promise: str, number: str, kept_by: str) -> None:
    file, name = re.findall(r"`([^`]+)`", kept_by)
    amount, _, unit = number.partition(" ")
    for node in tree_of(file).body:
        match node:
            case ast.Assign([ast.Name(found)], value) if found == name:
                assert value_of(value) in (float(amount), float(amount) * UNITS.get(unit, 1)), promise
                return
            case ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found) if found == name:
                assert file.rpartition("/")[2].startswith("test_") and name.startswith("test_")
                return
    pytest.fail(f"{file} has no {name}")


@pytest.mark.parametrize(("what", "figure", "beside", "measured_by"), MEASURED)
def test_a_measured_figure_is_recorded_and_its_program_exists(
    what: str, figure: str, beside: str, measured_by: str
) -> None:
    recorded = text_of("docs/benchmarks.md")
    assert f" {figure} " in recorded and beside.rpartition(": ")[2] in recorded, what
    assert (CHECKOUT / measured_by.strip("`")).is_file()


def test_the_page_has_both_kinds_of_rows() -> None:
    assert len(PROMISES) >= 15 and len(MEASURED) >= 5
