"""The result that `kubelet --runonce` prints, and its exit code."""

import json
from pathlib import Path

import pytest

from services.kubelet.run_once import report
from shared.agent.run_once import RUN_ONCE_FILE, load_record, save_record
from shared.model.frozen_copy import replace
from shared.model.run_once import Outcome, PodResult, RunOnceRecord

JOB = PodResult(namespace="default", name="job-here", uid="1", outcome=Outcome.SUCCEEDED)
WEB = PodResult(namespace="default", name="web-here", uid="2", outcome=Outcome.READY)
LATE = PodResult(namespace="other", name="late", uid="3", outcome=Outcome.RUNNING, message="with\nan escape \x1b[0m")
DONE = RunOnceRecord(generation="g", began=1.0, complete=True, pods=(JOB, WEB))


def printed(run_dir: Path, form: str = "text") -> tuple[int, list[str], list[str]]:
    out: list[str] = []
    err: list[str] = []
    return report(run_dir, form, out.append, err.append), out, err


def test_a_table_names_each_pod_and_its_result(tmp_path: Path) -> None:
    save_record(tmp_path, DONE)
    assert printed(tmp_path) == (
        0,
        [
            "NAMESPACE  POD       RESULT     MESSAGE",
            "default    job-here  Succeeded",
            "default    web-here  Ready",
        ],
        ["run once: these pods keep running: default/web-here"],
    )


def test_an_interrupted_run_names_what_is_not_done_and_fails(tmp_path: Path) -> None:
    save_record(tmp_path, replace(DONE, complete=False, pods=(JOB, LATE)))
    code, out, err = printed(tmp_path)
    assert code == 1
    assert out[-1] == "other      late      Running    with\\nan escape \\x1b[0m"
    assert err == ["run once: interrupted; not done, and left as they are: other/late"]


def test_json_has_the_same(tmp_path: Path) -> None:
    save_record(tmp_path, replace(DONE, problems=("/m/a.yaml: invalid pod",)))
    code, out, err = printed(tmp_path, "json")
    found = json.loads("\n".join(out))
    assert (code, found["complete"], found["failed"]) == (1, True, True)
    assert [(pod["name"], pod["outcome"]) for pod in found["pods"]] == [
        ("job-here", "Succeeded"),
        ("web-here", "Ready"),
    ]
    assert found["problems"] == ["/m/a.yaml: invalid pod"]
    assert err[0] == "run once: /m/a.yaml: invalid pod"


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"pods": 3}'])
def test_without_a_record_nothing_is_known(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / RUN_ONCE_FILE).write_bytes(content)
    assert load_record(tmp_path) is None
    assert printed(tmp_path) == (1, [], ["run once: interrupted before the pods were known"])
