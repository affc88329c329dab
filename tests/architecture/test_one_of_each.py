"""What the tree has once: a second copy of these is found here."""

import ast
import re

from tests.architecture.checkout import nodes_of, python_files, text_of

BACKOFF = "shared/time/backoff.py"
POWERS_THAT_ARE_NO_DELAYS = {
    "shared/config/durations.py",  # decimal fractions
    "shared/config/flag_values.py",  # widths of integers
    "shared/model/quantity.py",  # suffixes and exponents of quantities
}


def test_delays_grow_in_one_place() -> None:
    """A power with a variable exponent, or a name that is multiplied by itself, is a back-off of its own."""
    allowed = {BACKOFF, *POWERS_THAT_ARE_NO_DELAYS}
    found = {f"{name}:{line}" for name in python_files("shared", "bus", "services") for line in _growth(name)}
    assert {place for place in found if place.split(":")[0] not in allowed} == set()
    assert {place.split(":")[0] for place in found} == allowed


def test_yaml_is_read_in_one_place() -> None:
    reading = re.compile(r"\byaml\.(parse|load|safe_load|compose|scan)")
    found = [name for name in python_files("shared", "bus", "services") if reading.search(text_of(name))]
    assert found == ["shared/yaml_reader/reader.py"]


def test_shapes_of_data_are_described_in_one_language() -> None:
    described = re.compile(r"^class (ListOf|MapOf)\b", re.MULTILINE)
    found = [name for name in python_files("shared", "bus", "services") if described.search(text_of(name))]
    assert found == ["shared/model/schema.py"]


def test_clients_of_the_runtime_are_built_in_one_place() -> None:
    building = re.compile(r"(?<!class )\bCriRuntime\(")
    found = [name for name in python_files("shared", "bus", "services") if building.search(text_of(name))]
    # A command is no process of the agent and has no Context.
    assert found == ["services/cli/preflight/runtime.py", "services/frame/container_runtime.py"]


def _growth(name: str) -> list[int]:
    nodes = (node for node in nodes_of(name) if isinstance(node, ast.expr | ast.stmt))
    return [node.lineno for node in nodes if _grows(node)]


def _grows(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=ast.Pow(), right=exponent):
            return not isinstance(exponent, ast.Constant)
        case ast.AugAssign(op=ast.Pow() | ast.Mult()):
            return True
        case ast.Assign(targets=[target], value=value):
            products = [
                part for part in ast.walk(value) if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult)
            ]
            name = ast.unparse(target) if products else ""
            return any(name in (ast.unparse(part.left), ast.unparse(part.right)) for part in products)
    return False
