"""The structure that `make house` prints, on small checkouts."""

from pathlib import Path

import pytest

from tools.house import circles, describe, read, rooms_and_arrows


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    files = {
        "services/__init__.py": '"""Services."""\n',
        "services/a/__init__.py": '"""A."""\n',
        "services/a/core.py": "from bus import wire\nfrom services.a.names import NAME\n\nUSED = wire, NAME\n",
        "services/a/names.py": "NAME = 'a'\n",
        "bus/__init__.py": "",
        "bus/wire.py": "def late():\n    import shared.clock\n\n    return shared.clock\n",
        "shared/__init__.py": "from shared import clock\n",
        "shared/clock.py": "import bus.wire\n" * 3,
        "tests/test_a.py": "import services.a.core\n\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_an_arrow_leads_from_a_room_to_each_other_room_it_imports_from(checkout: Path) -> None:
    arrows = read(checkout).arrows()
    assert arrows == {"services": set(), "services.a": {"bus"}, "bus": {"shared"}, "shared": {"bus"}}


def test_an_import_of_a_name_counts_for_the_module_that_defines_it(checkout: Path) -> None:
    assert read(checkout).importers() == {"bus.wire": 2, "services.a.names": 1, "shared.clock": 2}


def test_circles_are_found_among_rooms_and_among_modules(checkout: Path) -> None:
    house = read(checkout)
    assert circles(house.arrows()) == [["bus", "shared"]]
    assert circles(house.imports) == [["bus.wire", "shared.clock"]]
    assert circles({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a", "e"], "e": ["d"]}) == [["a", "b", "c"], ["d", "e"]]
    assert not circles({"a": ["b", "c"], "b": ["c"], "c": []})


def test_the_report_counts_lines_of_product_and_tests(checkout: Path) -> None:
    report = "\n".join(describe(checkout))
    assert "lines of product code                15" in report
    assert "lines of test code                   2" in report
    assert "largest file                         bus.wire, 4 lines" in report
    assert "fullest room                         services.a, 3 modules" in report


def test_the_report_may_be_of_one_directory(checkout: Path) -> None:
    assert "modules                              3" in describe(checkout, "services/a/")
    assert rooms_and_arrows(checkout, "services/a/") == ["services.a: 3 modules, 6 lines -> none"]
