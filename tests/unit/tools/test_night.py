"""The night: what its parts run, and what it does where one fails."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.night import __main__ as night
from tests.night.__main__ import CHECKOUT, LANE, PARTS, Part, main
from tests.support.waits.deadline import WAIT_SECONDS


def python(code: str, **variables: str) -> Part:
    return Part([sys.executable, "-c", code], variables)


def test_it_goes_on_after_a_part_that_fails_and_names_it_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = tmp_path / "ran"
    note = f"import os; open({str(ran)!r}, 'a').write(os.environ['PART'] + os.environ['NIGHT'] + '\\n')"
    parts = {
        "first": python(f"{note}; assert 'MAKEFLAGS' not in os.environ", PART="a"),
        "second": python(f"{note}; raise SystemExit(3)", PART="b"),
        "third": python(f"{note}; assert os.path.isdir('{{scratch}}')", PART="c"),
    }
    monkeypatch.setattr(night, "PARTS", parts)
    monkeypatch.setattr(sys, "argv", ["night"])
    monkeypatch.setenv("MAKEFLAGS", " -- ARGS=first")
    monkeypatch.setenv("NIGHT", "1")
    assert main() == 1
    assert ran.read_text().split() == ["a1", "b1", "c1"]
    shown = capsys.readouterr()
    assert shown.err == "bulkhead: parts of the night failed: second\n"
    verdicts = [line.partition(" after ")[0] for line in shown.out.splitlines() if " after " in line]
    assert verdicts == ["night: first: passed", "night: second: failed with exit code 3", "night: third: passed"]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_part_removes_what_it_has_made_before_the_night_ends(
    tmp_path: Path, number: signal.Signals
) -> None:
    made = tmp_path / "made"
    part = f"""
import pathlib, time
path = pathlib.Path({str(made)!r})
path.touch()
try:
    print("made", flush=True)
    time.sleep(30)
finally:
    time.sleep(0.5)  # longer than Python gives a child after Ctrl-C
    path.unlink()
"""
    night = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a shell
from tests.night import __main__ as night
night.PARTS = {{"part": night.Part([sys.executable, "-c", {part!r}]), "next": night.Part(["false"])}}
sys.argv = ["night"]
sys.exit(night.main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", night], cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "made":
            assert process.poll() is None
        process.send_signal(number)
        shown, _ = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130
    assert not made.exists() and "next" not in shown


def test_the_list_has_commands_to_run_by_hand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["night", "--list", "debian-13"])
    assert main() == 0
    shown = capsys.readouterr().out
    assert shown.startswith("debian-13: MACHINE_SUITE=trixie ")
    assert "--junit-xml=build/night/debian-13.xml" in shown and "{part}" not in shown


def test_each_part_runs_what_there_is() -> None:
    for name, part in PARTS.items():
        words = list(part.command)
        if words[:2] == [sys.executable, "-m"] and words[2] != "pytest":
            module = CHECKOUT / words[2].replace(".", "/")
            assert module.with_suffix(".py").exists() or (module / "__main__.py").exists(), name
        assert not [word for word in words if word.startswith("tests/") and not (CHECKOUT / word).exists()], name


def test_other_machines_run_what_make_test_runs_in_machines() -> None:
    found = re.search(r"^IN_MACHINES = \$\(addprefix (\S+),(.*)\)$", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    assert [found[1] + name for name in found[2].split()] == LANE
    assert [name for name, part in PARTS.items() if set(LANE) <= set(part.command)] == [
        "kernel-trixie", "containerd-sid", "machine-crun", "debian-13",
    ]  # fmt: skip


@pytest.mark.parametrize("words", [["nothing"], ["simulate", "none"]])
def test_a_part_that_does_not_exist_is_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["night", *words])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert f"no part {words[-1]}" in capsys.readouterr().err
