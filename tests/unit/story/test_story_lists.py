"""`bulkhead explain` lists pods, follows one, and shows images and the node."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from services.cli.command import main
from shared.files.checkpoint import Checkpoint
from shared.story.files import directory_of

NOW = 2_000_000_000.0


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("BULKHEAD_HOME", str(tmp_path))
    monkeypatch.setattr("time.time", lambda: NOW)
    directory_of(str(tmp_path)).mkdir(parents=True)
    write(tmp_path, "u1", "web", *(event(NOW - 3600 * hours, f"{hours} hours ago") for hours in (5, 3, 1)))
    write(tmp_path, "u2", "db", event(NOW - 60, "newest"), pull(NOW - 90, "registry/db:1"))
    return tmp_path


def write(root: Path, uid: str, name: str, *lines: dict[str, Any], part: str = "") -> None:
    """The story of a pod of namespace shop."""
    head = {"what": "pod", "uid": uid, "name": name, "namespace": "shop", "source": "api"}
    path = directory_of(str(root)) / f"{uid}{part}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)))


def event(at: float, message: str) -> dict[str, Any]:
    return {"at": at, "what": "event", "reason": "Note", "message": message}


def pull(at: float, image: str) -> dict[str, Any]:
    return {"at": at, "what": "done", "call": "PullImage", "image": image, "took": 2.0}


def explain(root: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["explain", "--root-dir", str(root), *words])


def test_without_a_pod_all_pods_with_a_record_are_listed_the_newest_first(root: Path) -> None:
    lines = explain(root).stdout.splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["NAMESPACE", "NAME", "UID", "AGE"],
        ["shop", "db", "u2", "90s"],
        ["shop", "web", "u1", "60m"],
    ]
    assert "1 hours ago" in lines[2]
    assert [one["name"] for one in json.loads(explain(root, "-o", "json", "--since", "10m").stdout)] == ["db"]
    none = explain(root, "-n", "other")
    assert (none.exit_code, none.stdout) == (0, "")
    assert none.stderr.startswith(f"{directory_of(str(root))}: no record of a pod in namespace other (")


def test_a_listed_line_is_found_in_a_long_story_and_one_that_a_kill_left_in_half_is_not(root: Path) -> None:
    write(root, "u3", "long", *(event(NOW - 50 + n / 1000, f"turn {n} " + "x" * 100) for n in range(500)))
    with (directory_of(str(root)) / "u3.jsonl").open("a") as file:
        file.write('{"at": 1, "what"')
    assert "turn 499 " in explain(root).stdout


def test_since_leaves_out_older_lines(root: Path) -> None:
    text = explain(root, "web", "--since", "3h30m").stdout
    assert "5 hours" not in text and "3 hours" in text and "1 hours" in text
    newest = json.loads(explain(root, "web", "--since", "2h", "-o", "json").stdout)
    assert len(newest["story"]) == 1
    assert yaml.safe_load(explain(root, "web", "--since", "2h", "-o", "yaml").stdout) == newest


def test_the_record_of_an_image_is_that_of_all_pods_in_order_of_time(root: Path) -> None:
    present = {**event(NOW - 1, 'Container image "registry/web:3" already present'), "reason": "Pulled"}
    write(root, "u3", "later", pull(NOW - 5, "registry/web:2"), present, event(NOW, "no image: registry/"))
    write(root, "u3", "later", pull(NOW - 95, "registry/web:1"), part=".1")
    lines = explain(root, "image", "registry/").stdout.splitlines()
    assert [line.split("  ")[1:] for line in lines] == [
        ["shop/later", "image registry/web:1 is pulled, after 2.00 s"],
        ["shop/db", "image registry/db:1 is pulled, after 2.00 s"],
        ["shop/later", "image registry/web:2 is pulled, after 2.00 s"],
        ["shop/later", 'event Pulled: Container image "registry/web:3" already present'],
    ]
    assert json.loads(explain(root, "image", "db:", "-o", "json").stdout)[0]["pod"] == "shop/db"
    none = explain(root, "image", "nothing")
    assert none.exit_code == 1 and none.stderr.startswith("no record of an image with 'nothing' in its name (")


def test_the_record_of_the_node_is_its_changes_and_its_present_conditions(root: Path) -> None:
    down = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "runtime is down\x1b[31m"}
    up = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    changes = [{**down, "at": "2033-05-18T02:00:00Z"}, {**up, "at": "2033-05-18T03:30:00Z"}]
    conditions = [{**up, "lastTransitionTime": "2033-05-18T03:30:00Z"}]
    records = Checkpoint(root / "status", root / "run" / "status")
    records.save("node", {"conditions": conditions, "changes": changes})
    assert explain(root, "node").stdout.splitlines() == [
        "2033-05-18 02:00:00  Ready is False: KubeletNotReady: runtime is down\\x1b[31m",
        "2033-05-18 03:30:00  Ready is True: KubeletReady",
        "",
        "CONDITION  STATUS  SINCE                MESSAGE",
        "Ready      True    2033-05-18 03:30:00",
    ]
    assert explain(root, "node", "--since", "1h").stdout.startswith("2033-05-18 03:30:00")
    assert json.loads(explain(root, "node", "-o", "json").stdout)["changes"] == changes


def test_a_node_without_a_record_is_one_line(tmp_path: Path) -> None:
    answer = explain(tmp_path, "node")
    assert answer.exit_code == 1 and answer.stderr.startswith(f"{tmp_path}: no record of the node's conditions (")


@pytest.mark.parametrize("words", [("web", "more"), ("-f",), ("node", "-f"), ("web", "-f", "-o", "json")])
def test_words_that_do_not_go_together_are_wrong_usage(root: Path, words: tuple[str, ...]) -> None:
    assert explain(root, *words).exit_code == 2


@pytest.mark.long
def test_follow_prints_new_lines_over_a_rotation_until_ctrl_c(root: Path) -> None:
    # A test that runs in the background of a shell ignores SIGINT, and so would its children.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "services.cli.command", "explain", "u1", "-f"]
    words = [*command, "--root-dir", str(root)]
    story = directory_of(str(root)) / "u1.jsonl"
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout
        while "1 hours ago" not in process.stdout.readline():
            pass
        with story.open("a") as file:
            file.write(json.dumps(event(NOW, "second")) + "\n")
        while "second" not in process.stdout.readline():
            pass
        story.rename(story.with_suffix(".1.jsonl"))
        write(root, "u1", "web", event(NOW + 1, "third"))
        assert "third" in process.stdout.readline()
        process.send_signal(2)
        assert process.wait(60) == 130
