"""`-o json` of takeover and give-back: one object, and nothing before it."""

import json
from pathlib import Path
from typing import cast

import pytest

from services.cli.systemd.unit import ServiceUnit, unit_of
from services.cli.takeover import exchange
from services.cli.takeover.account import Account
from services.cli.takeover.containers import Change
from services.cli.takeover.exchange import Options, give_back, take_over
from services.cli.takeover.operation import DONE, REFUSED, ROLLED_BACK, Outcome
from services.cli.takeover.plan import Intent, Step
from services.cli.takeover.record import Record
from shared.errors import OperatorError

KEYS = ["command", "dryRun", "exitCode", "result", "node", "unit", "seconds", "containers", "lines", "problems"]


def account(form: str) -> tuple[Account, list[str], list[str]]:
    out: list[str] = []
    err: list[str] = []
    return Account("takeover", out.append, err.append, form), out, err


def test_the_object_has_what_the_lines_have() -> None:
    made, out, err = account("json")
    made.line("takeover 1/4: write")
    made.problem("not within 60 s: no: rolled back")
    made.node = "n1"
    made.ended(Outcome(code=ROLLED_BACK, line="", seconds=61.26))
    made.compared(3, Change(kept=1, restarted=("a/static",), ended=("a/ended",)))
    assert (out, err) == ([], [])
    assert made.finish(ROLLED_BACK) == ROLLED_BACK
    [text] = out
    data = json.loads(text)
    assert list(data) == [*KEYS, "preflight"]
    assert (data["result"], data["exitCode"], data["seconds"]) == ("rolled-back", 3, 61.3)
    assert data["containers"] == {"before": 3, "kept": 1, "restartedPods": ["a/static"], "endedPods": ["a/ended"]}
    assert (data["lines"], data["problems"]) == (["takeover 1/4: write"], ["not within 60 s: no: rolled back"])
    assert err == []


def test_what_a_log_line_has_of_control_characters_is_escaped_and_the_report_keeps_its_colours() -> None:
    made, out, err = account("text")
    made.show(["\x1b[32mok\x1b[0m"])
    made.line("a\x1b[2J")
    made.problem("b\r\x9b")
    assert (out, err) == (["\x1b[32mok\x1b[0m", "a\\x1b[2J"], ["b\\r\\x9b"])
    quiet, shown, _ = account("json")
    quiet.show(["report"])
    quiet.line("a\x1b[2J")
    quiet.finish(DONE)
    assert json.loads(shown[0])["lines"] == ["a\\x1b[2J"]


def test_text_is_written_at_once_and_no_object_after_it() -> None:
    made, out, err = account("text")
    made.line("a")
    made.problem("b")
    assert made.finish(DONE) == DONE
    assert (out, err) == (["a"], ["b"])


@pytest.mark.parametrize("command", ["takeover", "give-back"])
def test_a_refusal_before_anything_is_read_is_an_object_too(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_root() -> ServiceUnit:
        raise OperatorError("needs root", where="exchanging the kubelet", remedy="run it with sudo")

    monkeypatch.setattr(exchange, "kubelet_unit", no_root)
    made, out, err = account("json")
    code = take_over(Options(), made) if command == "takeover" else give_back(60.0, "", made)
    data = json.loads(out[0])
    assert (code, data["result"], data["containers"], data["seconds"]) == (1, "refused", None, None)
    assert data["problems"] == ["exchanging the kubelet: needs root (run it with sudo)"]
    assert err == []


UNIT = {"LoadState": "loaded", "ExecStart": [["/usr/bin/kubelet", ["/usr/bin/kubelet"], False, 0, 0, 0, 0, 0]]}


def test_the_way_back_does_not_depend_on_the_environment_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kubelet"
    file.write_text("A='an open quote\n")
    unit = unit_of({**UNIT, "EnvironmentFiles": [[str(file), True]]})
    monkeypatch.setattr(exchange, "kubelet_unit", lambda: unit)
    monkeypatch.setattr(exchange, "STATE", tmp_path)
    monkeypatch.setattr(exchange, "_FILE", tmp_path / "drop-in")
    made, out, err = account("text")
    assert give_back(60.0, "", made) == DONE
    assert (out, err) == (["kubelet.service is not taken over; it runs /usr/bin/kubelet"], [])


def test_a_pipe_that_closes_ends_a_dry_run_without_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_given: object) -> int:
        raise BrokenPipeError

    monkeypatch.setenv("BULKHEAD_HOME", "/nowhere")
    monkeypatch.setenv("BULKHEAD_RUN_DIR", "/nowhere")
    monkeypatch.setattr(exchange, "kubelet_unit", lambda: unit_of(UNIT))
    monkeypatch.setattr(exchange, "_show_plan", closed)
    made, out, err = account("text")
    with pytest.raises(BrokenPipeError):
        take_over(Options(), made, dry_run=True)
    assert (out, err) == ([], [])


@pytest.mark.parametrize("command", ["takeover", "give-back"])
def test_neither_kubelet_is_stopped_where_systemd_would_not_start_the_other(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = unit_of({**UNIT, "EnvironmentFiles": [["/nowhere/env", False]]})
    monkeypatch.setattr(exchange, "kubelet_unit", lambda: unit)
    monkeypatch.setattr(exchange, "STATE", tmp_path)
    monkeypatch.setattr(exchange, "_FILE", tmp_path / "drop-in")
    (tmp_path / "drop-in").write_text("[Service]\n")
    made, out, err = account("text")
    code = take_over(Options(), made) if command == "takeover" else give_back(60.0, "", made)
    assert code == REFUSED
    assert err[0].startswith("kubelet.service: systemd does not start it without its environment file /nowhere/env")
    assert out == []


@pytest.mark.parametrize(("mode", "words"), [(None, "not there"), (0o644, "not executable")])
def test_nothing_is_given_back_to_a_program_that_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int | None, words: str
) -> None:
    program = tmp_path / "kubelet"
    if mode is not None:
        program.touch(mode)
    record = Record(intent=Intent.TAKEOVER, step=Step.RESTART, words=(str(program),))

    class SavedRecord:
        def __init__(self, _: object) -> None:
            pass

        def load(self) -> Record:
            return record

    monkeypatch.setattr(exchange, "RecordFile", SavedRecord)
    made, _, err = account("text")
    assert exchange._give_back(cast(ServiceUnit, None), 1.0, str(tmp_path), made) == REFUSED  # the unit is not read
    assert len(err) == 1 and str(program) in err[0] and words in err[0]
