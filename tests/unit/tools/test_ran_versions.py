"""The table of the versions that ran is the one that the tests have noted."""

import os
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.support.installed import ran_versions
from tests.support.installed.ran_versions import (
    PAGE,
    Note,
    begin_test,
    begin_use,
    end_test,
    end_use,
    extract_version,
    note_use,
    read_record,
    render_page,
    render_record,
    render_table,
    write_notes,
)  # fmt: skip


def test_the_page_shows_the_record_of_the_tests() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == render_page(text, read_record()), "run: python -m tests.support.installed.ran_versions"


def test_a_test_counts_for_what_ran_while_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: dict[str, object] = {}
    monkeypatch.setattr(ran_versions, "_passed", passed)
    begin_test()
    agent = begin_use("containerd", "2.1.9")  # of a module
    end_test("tests/e2e/test_a.py", passed=True)
    begin_test()
    note_use("kubectl", "1.37.1")
    end_test("tests/e2e/test_a.py", passed=True)
    begin_test()  # one that fails
    note_use("kubectl", "1.20.2")
    end_test("tests/e2e/test_a.py", passed=False)
    begin_test()
    end_use(agent)
    end_test("tests/e2e/test_b.py", passed=True)
    begin_test()
    end_test("tests/e2e/test_c.py", passed=True)
    begin_test()  # one whose agent does not start
    end_test("tests/e2e/test_d.py", passed=False)
    assert passed == {
        "tests/e2e/test_a.py": {("containerd", "2.1.9"): 2, ("kubectl", "1.37.1"): 1},
        "tests/e2e/test_b.py": {("containerd", "2.1.9"): 1},
        "tests/e2e/test_d.py": {},
    }


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the notes of a run in which one test of a machine has passed, and one out here."""
    monkeypatch.setattr(ran_versions, "_NOTES", tmp_path / "notes")
    passed = {file: Counter({("Linux", "6.1"): 1}) for file in ("tests/machine/test_node.py", "tests/e2e/test_pods.py")}
    monkeypatch.setattr(ran_versions, "_passed", passed)
    for variable in ran_versions._PARTS_OF_MACHINES:  # this run may itself have other parts
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(ran_versions, "chosen_suite", lambda: os.environ.get("TEST_CONTAINERD", "sid"))
    monkeypatch.setattr(ran_versions, "runs_in_docker", lambda: "TEST_RUNTIME" in os.environ)
    return tmp_path / "notes"


def test_a_run_replaces_the_notes_of_those_with_the_same_choice(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_notes(partial=False)
    write_notes(partial=False)
    assert len(list(notes.iterdir())) == 2
    others = [*ran_versions._PARTS_OF_MACHINES, "TEST_CONTAINERD", "TEST_RUNTIME"]
    for number, variable in enumerate(others, 3):  # what is chosen for machines is nothing to agents, and vice versa
        with monkeypatch.context() as changed:
            changed.setenv(variable, "bookworm")
            write_notes(partial=False)
        assert len(list(notes.iterdir())) == number
    monkeypatch.setenv("MACHINE_KERNEL", "trixie")
    write_notes(partial=False)
    assert len(list(notes.iterdir())) == 3 + len(others)


def test_a_run_of_some_tests_of_a_file_replaces_no_note(notes: Path) -> None:
    write_notes(partial=True)
    assert not notes.exists()


def test_a_run_in_which_no_test_of_a_file_has_passed_replaces_no_note(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ran_versions, "_passed", {"tests/machine/test_node.py": Counter()})
    write_notes(partial=False)
    assert list(notes.iterdir()) == []


def note(file: str, *ran: tuple[str, str, int], choice: str = "", day: int = 1) -> Note:
    return Note(file, choice, f"2026-11-{day:02}T10:00:00Z", list(ran))


def test_the_notes_of_all_runs_are_one_row_for_each_version() -> None:
    notes = [
        note("tests/e2e/test_a.py", ("containerd", "1.10.0", 1), ("Linux", "6.1", 3)),
        note("tests/e2e/behaviour/test_b.py", ("containerd", "1.6.20", 2), day=5),
        note("tests/process/test_c.py", ("containerd", "1.6.20", 4), day=3),
    ]
    assert render_table(notes).splitlines()[2:] == [
        "| Linux | 6.1 | 3 of `tests/e2e` | 2026-11-01 |",
        "| containerd | 1.6.20 | 2 of `tests/e2e`, 4 of `tests/process` | 2026-11-05 |",
        "| containerd | 1.10.0 | 1 of `tests/e2e` | 2026-11-01 |",
    ]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of four runs, and beside it the page; there are the files of two of them."""
    for file in ("first", "second"):
        (tmp_path / file).touch()
    monkeypatch.setattr(ran_versions, "CHECKOUT", tmp_path)
    monkeypatch.setattr(ran_versions, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(ran_versions, "PAGE", tmp_path / "page.md")
    ran_versions.PAGE.write_text(f"Before\n{ran_versions._BEGIN}old{ran_versions._END}After\n")
    kept = [
        note("first", ("runc", "1.1", 2), day=2),
        note("first", ("crun", "1.8", 2), choice="TEST_HANDLER=crun", day=2),
        note("gone", ("runc", "1.0", 2), day=2),
        note("second", ("runc", "1.1", 2), day=2),
    ]
    ran_versions.RECORD.write_bytes(render_record(kept))
    return ran_versions.RECORD


def take(monkeypatch: pytest.MonkeyPatch, *directories: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["ran_versions", *map(str, directories)])
    return ran_versions.main()


def test_the_record_keeps_the_newest_note_of_each_file_with_each_choice(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = record.parent / "here", record.parent / "there"
    for directory, noted in (
        (there, [note("first", ("runc", "1.3", 5), day=4), note("second", day=4)]),  # none of the second has passed
        (here, [note("first", ("runc", "1.2", 5), day=3), note("second", ("runc", "1.2", 9), day=1)]),
    ):
        directory.mkdir()
        for number, one in enumerate(noted):
            (directory / f"{number}.json").write_bytes(msgspec.json.encode(one))
    assert take(monkeypatch, there, here) == 0
    assert read_record() == [
        note("first", ("runc", "1.3", 5), day=4),
        note("first", ("crun", "1.8", 2), choice="TEST_HANDLER=crun", day=2),
    ]
    text = ran_versions.PAGE.read_text()
    assert text == render_page(text, read_record())
    assert text.startswith("Before\n") and text.endswith("After\n") and "old" not in text and "1.3" in text


@pytest.mark.parametrize(
    ("noted", "reason"), [(None, "no run has noted anything"), ('{"file": "first", "ran": []}', "not a note")]
)
def test_what_has_no_notes_is_refused(
    record: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], noted: str | None, reason: str
) -> None:
    directory, before = record.parent / "notes", record.read_bytes()
    if noted is not None:
        directory.mkdir()
        (directory / "one.json").write_text(noted)
    assert take(monkeypatch, directory) == 1
    shown = capsys.readouterr().err
    assert reason in shown and str(directory) in shown and shown.count("\n") == 1
    assert record.read_bytes() == before


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
