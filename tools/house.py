"""Prints the structure of a checkout: rooms (packages), arrows (imports) between them, circles, sizes. Reads only."""

import argparse
import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PRODUCT = ("services", "bus", "shared")
TESTS = ("tests",)
NOTED, LONG = 250, 400  # lines
WIDEST = 10  # modules listed

Graph = Mapping[str, Iterable[str]]


@dataclass
class House:
    """Modules by dotted name: lines, the modules each imports, and the room (package) each is in."""

    lines: dict[str, int] = field(default_factory=dict)
    imports: dict[str, set[str]] = field(default_factory=dict)
    rooms: dict[str, str] = field(default_factory=dict)

    def arrows(self) -> dict[str, set[str]]:
        """Room -> the other rooms it imports from."""
        found: dict[str, set[str]] = {room: set() for room in self.rooms.values()}
        for module, imported in self.imports.items():
            found[self.rooms[module]] |= {self.rooms[other] for other in imported} - {self.rooms[module]}
        return found

    def importers(self) -> Counter[str]:
        """Module -> how many other modules import it."""
        return Counter(other for imported in self.imports.values() for other in imported)


def python_files(checkout: Path, tops: Iterable[str]) -> list[Path]:
    """The Python files below these directories of the checkout, sorted. Nothing hidden, no caches."""
    return sorted(path for top in tops for path in (checkout / top).rglob("*.py") if "__pycache__" not in path.parts)


def read(checkout: Path, below: str = "") -> House:
    """Read the product's modules, or those below one directory. Raises SyntaxError for a file that does not parse."""
    paths = [path for path in python_files(checkout, PRODUCT) if str(path.relative_to(checkout)).startswith(below)]
    names = {path: _module(path.relative_to(checkout)) for path in paths}
    house, known = House(), set(names.values())
    for path, name in names.items():
        text = path.read_text()
        house.lines[name] = len(text.splitlines())
        house.rooms[name] = name if path.name == "__init__.py" else name.rpartition(".")[0]
        house.imports[name] = {other for other in _imported(ast.parse(text), known) if other != name}
    return house


def circles(graph: Graph) -> list[list[str]]:
    """The strongly connected components of more than one node, largest first (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            place = stack.index(node)
            if len(component := stack[place:]) > 1:
                found.append(sorted(component))
            del stack[place:]

    for node in graph:
        if node not in order:
            visit(node)
    return sorted(found, key=lambda component: (-len(component), component))


def describe(checkout: Path, below: str = "") -> list[str]:
    """The lines to print for a checkout."""
    house = read(checkout, below)
    arrows, sizes = house.arrows(), Counter(house.rooms.values())
    within = sum(house.rooms[m] == house.rooms[o] for m, imported in house.imports.items() for o in imported)
    fullest, modules = max(sizes.items(), key=lambda item: item[1], default=("none", 0))
    longest = max(house.lines, key=lambda name: house.lines[name], default="none")
    over = [sum(lines > limit for lines in house.lines.values()) for limit in (NOTED, LONG)]
    product = sum(house.lines.values())
    tests = sum(len(path.read_text().splitlines()) for path in python_files(checkout, TESTS))
    rows = [
        ("rooms (packages with modules)", f"{len(sizes)}"),
        ("modules", f"{len(house.lines)}"),
        ("arrows between rooms", f"{sum(map(len, arrows.values()))}"),
        ("arrows between modules of one room", f"{within}"),
        ("fullest room", f"{fullest}, {modules} modules"),
        ("circles of rooms", _shown(circles(arrows))),
        ("circles of modules", _shown(circles(house.imports))),
        ("largest file", f"{longest}, {house.lines.get(longest, 0)} lines"),
        (f"files over {NOTED} lines", f"{over[0]}"),
        (f"files over {LONG} lines", f"{over[1]}"),
        ("lines of product code", f"{product}"),
        ("lines of test code", f"{tests}"),
    ]
    lines = [f"{label:36} {value}" for label, value in rows]
    lines.append(f"the {WIDEST} modules with the most importers")
    widest = sorted(house.importers().items(), key=lambda item: (-item[1], item[0]))[:WIDEST]
    return lines + [f"  {count:4} {module}" for module, count in widest]


def rooms_and_arrows(checkout: Path, below: str = "") -> list[str]:
    """One line for each room: its modules and lines, and the rooms it imports from."""
    house = read(checkout, below)
    lines: dict[str, int] = defaultdict(int)
    for module, room in house.rooms.items():
        lines[room] += house.lines[module]
    sizes = Counter(house.rooms.values())
    return [
        f"{room}: {sizes[room]} modules, {lines[room]} lines -> {', '.join(sorted(others)) or 'none'}"
        for room, others in sorted(house.arrows().items())
    ]


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.Module, known: set[str]) -> set[str]:
    """The known modules that a module imports, wherever in the file. Imports are absolute in this project."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in known else node.module)
    return found & known


def _shown(found: list[list[str]]) -> str:
    return f"{len(found)}" + "".join(f"\n{'':36}   {len(one)}: {', '.join(one)}" for one in found)


def main() -> None:
    """Print the structure of a checkout."""
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=__doc__)
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--below", default="", help="only what is below this directory, such as services/podsync/core")
    parser.add_argument("--rooms", action="store_true", help="one line for each room, with its arrows")
    given = parser.parse_args()
    print("\n".join((rooms_and_arrows if given.rooms else describe)(given.checkout, given.below)))


if __name__ == "__main__":
    main()
