"""Which start of the machine, and of its programs, this is."""

from pathlib import Path

import pytest

from shared.host.boot_id import boot_id, start_of_programs


def systemctl(directory: Path, script: str) -> None:
    """A systemctl that runs this shell script, and gets its arguments."""
    path = directory / "systemctl"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_soft_reboot_is_another_start_of_programs_in_the_same_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    systemctl(tmp_path, '[ "$*" = "show --property=UserspaceTimestampMonotonic --value" ] && echo 5178')
    before, again = start_of_programs(), start_of_programs()
    assert before == again == f"{boot_id()} 5178"
    systemctl(tmp_path, "echo 900123")
    assert start_of_programs() == f"{boot_id()} 900123"


def test_without_systemd_it_is_the_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert start_of_programs() == boot_id()
    systemctl(tmp_path, "echo System has not been booted with systemd >&2; exit 1")
    assert start_of_programs() == boot_id() != ""


def test_where_systemd_does_not_answer_programs_are_not_taken_for_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert start_of_programs(f"{boot_id()} 5178") == f"{boot_id()} 5178"
    assert start_of_programs("another-boot 5178") == start_of_programs("") == boot_id()
