"""`-o json` of takeover and give-back: one object with the keys of the page about commands, and nothing before it."""

import json

import pytest

from services.cli.takeover import exchange
from services.cli.takeover.account import Account
from services.cli.takeover.containers import Change
from services.cli.takeover.exchange import Options, give_back, take_over
from services.cli.takeover.operation import DONE, ROLLED_BACK, Outcome
from services.cli.takeover.unit import KubeletUnit
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


def test_text_is_written_at_once_and_no_object_after_it() -> None:
    made, out, err = account("text")
    made.line("a")
    made.problem("b")
    assert made.finish(DONE) == DONE
    assert (out, err) == (["a"], ["b"])


@pytest.mark.parametrize("command", ["takeover", "give-back"])
def test_a_refusal_before_anything_is_read_is_an_object_too(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_root() -> KubeletUnit:
        raise OperatorError("needs root", where="exchanging the kubelet", remedy="run it with sudo")

    monkeypatch.setattr(exchange, "kubelet_unit", no_root)
    made, out, err = account("json")
    code = take_over(Options(), made) if command == "takeover" else give_back(60.0, "", made)
    data = json.loads(out[0])
    assert (code, data["result"], data["containers"], data["seconds"]) == (1, "refused", None, None)
    assert data["problems"] == ["exchanging the kubelet: needs root (run it with sudo)"]
    assert err == []
