"""The night: what its parts run, and what it does where one fails."""

import sys
from pathlib import Path

import pytest

from tests.night import __main__ as night
from tests.night.__main__ import CHECKOUT, PARTS, Part, main


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
    assert capsys.readouterr().err == "bulkhead: parts of the night failed: second\n"


def test_each_part_runs_what_there_is() -> None:
    for name, part in PARTS.items():
        words = list(part.command)
        if words[:2] == [sys.executable, "-m"] and words[2] != "pytest":
            module = CHECKOUT / words[2].replace(".", "/")
            assert module.with_suffix(".py").exists() or (module / "__main__.py").exists(), name
        assert not [word for word in words if word.startswith("tests/") and not (CHECKOUT / word).exists()], name


@pytest.mark.parametrize("words", [["nothing"], ["simulate", "none"]])
def test_a_part_that_does_not_exist_is_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["night", *words])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert f"no part {words[-1]}" in capsys.readouterr().err
