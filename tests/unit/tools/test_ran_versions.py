"""The table of the versions that ran is the one that the tests have noted."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.support.installed import ran_versions
from tests.support.installed.ran_versions import (
    PAGE,
    RECORD,
    begin_test,
    begin_use,
    end_test,
    end_use,
    extract_version,
    merge_notes,
    note_use,
    render_page,
    render_table,
    write_notes,
)  # fmt: skip


def test_the_page_shows_the_record_of_the_tests() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == render_page(text, json.loads(RECORD.read_text())), (
        "run: python -m tests.support.installed.ran_versions"
    )


def test_a_test_counts_for_what_ran_while_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: dict[str, object] = {}
    monkeypatch.setattr(ran_versions, "_passed", passed)
    begin_test()
    agent = begin_use("containerd", "2.1.9")  # of a module
    end_test("tests/e2e/test_a.py")
    begin_test()
    note_use("kubectl", "1.37.1")
    end_test("tests/e2e/test_a.py")
    begin_test()  # one that fails
    note_use("kubectl", "1.20.2")
    begin_test()
    end_use(agent)
    end_test("tests/e2e/test_b.py")
    begin_test()
    end_test("tests/e2e/test_c.py")
    assert passed == {
        "tests/e2e/test_a.py": {("containerd", "2.1.9"): 2, ("kubectl", "1.37.1"): 1},
        "tests/e2e/test_b.py": {("containerd", "2.1.9"): 1},
    }


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the notes of a run in which one test has passed."""
    monkeypatch.setattr(ran_versions, "_NOTES", tmp_path)
    monkeypatch.setattr(ran_versions, "_passed", {"tests/machine/test_node.py": Counter({("Linux", "6.1"): 1})})
    return tmp_path


def test_a_run_with_other_parts_in_its_machines_replaces_no_note(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ran_versions._PARTS_OF_MACHINES:  # this run may itself have other parts
        monkeypatch.delenv(variable, raising=False)
    write_notes("")
    write_notes("")
    assert len(list(notes.iterdir())) == 1
    for number, variable in enumerate(ran_versions._PARTS_OF_MACHINES, 2):
        with monkeypatch.context() as changed:
            changed.setenv(variable, "sid")
            write_notes("")
        assert len(list(notes.iterdir())) == number
    monkeypatch.setenv("MACHINE_KERNEL", "trixie")
    write_notes("")
    assert len(list(notes.iterdir())) == 2 + len(ran_versions._PARTS_OF_MACHINES)


def test_a_run_of_some_tests_of_a_file_replaces_no_note(notes: Path) -> None:
    write_notes("package")
    assert not list(notes.iterdir())


def test_the_notes_of_all_runs_are_one_row_for_each_version() -> None:
    notes = [
        {"file": "tests/e2e/test_a.py", "ran": [["containerd", "1.10.0", 1], ["Linux", "6.1", 3]]},
        {"file": "tests/e2e/behaviour/test_b.py", "ran": [["containerd", "1.6.20", 2]]},
        {"file": "tests/process/test_c.py", "ran": [["containerd", "1.6.20", 4]]},
    ]
    assert render_table(merge_notes(notes)).splitlines()[2:] == [
        "| Linux | 6.1 | 3 of `tests/e2e` |",
        "| containerd | 1.6.20 | 2 of `tests/e2e`, 4 of `tests/process` |",
        "| containerd | 1.10.0 | 1 of `tests/e2e` |",
    ]


def test_a_machine_is_what_it_prints() -> None:
    printed = "Linux 6.12.113\nDebian 12.13\nsystemd 252 (252.39-1~deb12u1)\n"
    printed += "containerd github.com/containerd/containerd/v2 2.1.9+unknown\ncrun version 1.8.1\nPython 3.11.2\nno\n"
    assert ran_versions.parse_machine(printed) == [
        ("cgroups", "v2"), ("Linux", "6.12.113"), ("Debian", "12.13"), ("systemd", "252.39"),
        ("containerd", "2.1.9"), ("crun", "1.8.1"), ("Python", "3.11.2"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("printed", "version"),
    [("1.6.20~ds1", "1.6.20"), ("runc version 1.1.5+ds1", "1.1.5"), ("crun version 1.8.1", "1.8.1"), ("", "")],
)
def test_a_version_has_nothing_of_the_distribution(printed: str, version: str) -> None:
    assert extract_version(printed) == version
