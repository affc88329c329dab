"""Changes one condition of the product at a time and runs the tests of its room.

`python -m tests.support.source.mutation --help` shows the options.
A change that no test notices is printed with its line: a survivor. Exit code 1 when more than the allowed share
survives. Works on a copy of the checkout; each mutant is tried with the room's own tests first, then its service's.
`make night` draws mutants with a new seed, which is printed, and stops after a limited time.
"""

import argparse
import ast
import functools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.architecture.checkout import CHECKOUT, python_files, tracked_files

SURVIVING_PERCENT = 10.0  # allowed
LONGEST_SECONDS = 600.0  # of one run of tests; a mutant that hangs is noticed
_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """`text` takes the place of the characters `begin` to `end` of the file's bytes."""

    file: str
    line: int
    begin: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.begin] + self.text.encode() + source[self.end :]

    def describe(self, source: bytes) -> str:
        return f"{self.file}:{self.line}: {source[self.begin : self.end].decode()!r} -> {self.text!r}"


def mutants_of(file: str, source: bytes) -> Iterator[Mutant]:
    """Return every mutant of the file: comparisons, `and` and `or`, `not`, conditions that always or never hold, also
    those of comprehensions and of `case`."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def mutant(node: ast.expr, text: str) -> Mutant:
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin = starts[node.lineno - 1] + node.col_offset
        return Mutant(file, node.lineno, begin, starts[node.end_lineno - 1] + node.end_col_offset, text)

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            for index, operator in enumerate(node.ops):
                operators = [*node.ops[:index], _COMPARED[type(operator)](), *node.ops[index + 1 :]]
                yield mutant(node, f"({ast.unparse(ast.Compare(node.left, operators, node.comparators))})")
        elif isinstance(node, ast.BoolOp):
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield mutant(node, f"({ast.unparse(ast.BoolOp(other, node.values))})")
            for index in range(len(node.values)):
                left = [*node.values[:index], *node.values[index + 1 :]]
                yield mutant(node, f"({ast.unparse(ast.BoolOp(node.op, left) if len(left) > 1 else left[0])})")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield mutant(node, f"({ast.unparse(node.operand)})")
        for condition in _conditions(node):
            if not isinstance(condition, ast.Compare | ast.BoolOp):  # those are changed above
                yield mutant(condition, f"(not ({ast.unparse(condition)}))")


def _conditions(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.match_case(guard=ast.expr() as test):
            return [test]
        case ast.comprehension(ifs=ifs):
            return ifs
        case _:
            return []


def cores() -> list[str]:
    """Return the files whose decisions have unit tests."""
    pure = ("shared/podspec/", "shared/model/", "bus/ledger.py", "bus/replica.py")
    names = python_files("services", "shared", "bus")
    return [name for name in names if "/core/" in name or name.startswith(pure)]


def shells() -> list[str]:
    """Return the files that act on what the cores decide, and the I/O that services share."""
    pure = set(cores())
    names = [name for name in python_files("services", "shared") if name not in pure and "_pb2" not in name]
    rooms = ("/adapters/", "/controllers/", "/plugins/", "services/frame/")
    shared = [name for name in names if name.startswith("shared/") and _importing_tests(name)]
    return [name for name in names if any(room in name for room in rooms)] + shared


def find_tests(file: str) -> list[str]:
    """Return the folders or files of tests that may notice a change of the file, the nearest first."""
    parts = Path(file).parts
    room = [part for part in parts[1:-1] if part not in ("core", "adapters", "controllers")]
    folders = ["tests/unit/bus"] if parts[0] == "bus" else [f"tests/unit/{Path(file).stem}"]
    folders += [f"tests/unit/{'/'.join(room[:depth])}" for depth in range(len(room), 0, -1)]
    folders += [f"tests/service/{room[0]}"] if parts[0] == "services" else []
    near = [folder for folder in folders if (CHECKOUT / folder).is_dir()]
    return near or _importing_tests(file)


def _importing_tests(file: str) -> list[str]:
    """Return the unit and service tests that import the module by its name."""
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package, _, name = module.rpartition(".")
    imports = re.compile(rf"^(?:from {re.escape(module)} import|from {re.escape(package)} import .*\b{name}\b)", re.M)
    return [test for test, text in _texts_of_tests().items() if name in text and imports.search(text)]


@functools.cache
def _texts_of_tests() -> dict[str, str]:
    tests = [test for test in python_files("tests") if test.startswith(("tests/unit/", "tests/service/"))]
    return {test: (CHECKOUT / test).read_text(encoding="utf-8") for test in tests if "/test_" in test}


def notices(copy: Path, mutant: Mutant) -> bool:
    """Return whether a test fails with the change."""
    path = copy / mutant.file
    source = path.read_bytes()
    path.write_bytes(mutant.apply(source))
    options = ("-x", "-q", "-p", "no:cacheprovider", "-m", "not root and not long", "--hypothesis-profile=quick")
    try:
        for folder in find_tests(mutant.file):
            command = [sys.executable, "-P", "-m", "pytest", *options, folder]
            environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
            try:
                done = subprocess.run(
                    command, cwd=copy, env=environment, capture_output=True, check=False, timeout=LONGEST_SECONDS
                )
            except subprocess.TimeoutExpired:
                return True
            if done.returncode:
                return True
        return False
    finally:
        path.write_bytes(source)


def copy_checkout(directory: Path) -> Path:
    for name in tracked_files():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, directory / name)
    return directory


def main() -> int:
    first = int(os.environ.get("FIRST_SEED", "0"))
    parser = argparse.ArgumentParser(prog="python -m tests.support.source.mutation", description=__doc__)
    parser.add_argument("files", nargs="*", help="product files, or file:line; default: all cores")
    parser.add_argument("--shells", action="store_true", help="adapters, controllers and shared I/O in place of cores")
    parser.add_argument("--count", type=int, default=0, help="so many, drawn; default: all")
    parser.add_argument("--seed", type=int, default=first, help=f"of the drawing (default {first})")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no more then; default: no limit")
    parser.add_argument("--jobs", type=int, default=2, help="runs of tests at once (default 2)")
    given = parser.parse_args()
    wanted = {
        name: int(line or 0)
        for name, _, line in (text.partition(":") for text in given.files or (shells() if given.shells else cores()))
    }
    sources = {name: (CHECKOUT / name).read_bytes() for name in wanted}  # as the copies are: the checkout may change
    every = [mutant for name, source in sources.items() for mutant in mutants_of(name, source)]
    every = [mutant for mutant in every if wanted[mutant.file] in (0, mutant.line)]
    if given.count:
        every = random.Random(given.seed).sample(every, min(given.count, len(every)))
    print(f"{len(every)} mutants, seed {given.seed}", flush=True)
    survivors = tried = 0
    end = time.monotonic() + given.minutes * 60
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(given.jobs) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(given.jobs):
            copies.put(copy_checkout(Path(scratch) / str(number)))

        def survives(mutant: Mutant) -> bool | None:
            """Return whether no test notices the change; None = the time is over, and it was not tried."""
            if time.monotonic() >= end:
                return None
            copy = copies.get()
            try:
                return not notices(copy, mutant)
            finally:
                copies.put(copy)

        for mutant, survived in zip(every, pool.map(survives, every), strict=True):
            tried += survived is not None
            if survived:
                survivors += 1
                print(f"survives: {mutant.describe(sources[mutant.file])}", flush=True)
    percent = 100 * survivors / max(tried, 1)
    print(f"{survivors} of {tried} survive ({percent:.1f} %; {SURVIVING_PERCENT:g} % are allowed)")
    return 1 if percent > SURVIVING_PERCENT else 0


if __name__ == "__main__":
    sys.exit(main())
