"""No module and no room of the product imports itself over others."""

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

from tests.architecture.checkout import python_files

PRODUCT = ("bus", "services", "shared")


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """Each module of the product -> those that it imports."""
    graph = grimp.build_graph(*PRODUCT, cache_dir=None)
    assert len(graph.modules) == len(python_files(*PRODUCT))
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def circle_of(imports: Mapping[str, set[str]]) -> list[str]:
    """Return names each of which imports the next one, the last of them the first; none without a circle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))  # there each is imported by the next one
    return []


def rooms_of(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Each directory -> the other directories whose modules it imports."""
    packages = {module.rpartition(".")[0] for module in imports}
    room = {module: module if module in packages else module.rpartition(".")[0] for module in imports}
    rooms: dict[str, set[str]] = {}
    for module, imported in imports.items():
        rooms.setdefault(room[module], set()).update({room[each] for each in imported} - {room[module]})
    return rooms


def test_no_module_imports_itself_in_a_circle(imports: dict[str, set[str]]) -> None:
    circle = circle_of(imports)
    assert not circle, " imports ".join(circle)


def test_no_room_imports_itself_in_a_circle(imports: dict[str, set[str]]) -> None:
    circle = circle_of(rooms_of(imports))
    assert not circle, " imports ".join(circle)


def test_a_package_and_its_module_or_a_room_and_the_one_above_are_circles() -> None:
    package = {"a": {"a.b"}, "a.b": {"a"}}
    assert set(circle_of(package)) == {"a", "a.b"}
    room_above = {
        "a": set[str](),
        "a.x": {"a.b.y"},
        "a.b": set[str](),
        "a.b.y": set[str](),
        "a.b.z": {"a.w"},
        "a.w": set[str](),
    }
    assert circle_of(room_above) == []
    assert set(circle_of(rooms_of(room_above))) == {"a", "a.b"}
