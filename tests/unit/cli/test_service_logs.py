"""The logs of services as one: in order of time, over rotations, filtered, and followed."""

import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from services.cli.agent.service_logs import ServiceLog, time_of
from services.cli.command import main
from shared.config.effective import EffectiveConfig
from shared.config.excerpt import CONFIG_NAME
from shared.config.loader import encode_effective

DEADLINE = 60.0


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """A directory with `run` and `log`."""
    run_dir, log_dir = tmp_path / "run", tmp_path / "log"
    run_dir.mkdir()
    log_dir.mkdir()
    config = EffectiveConfig(node_name="here", root_dir="/k", run_dir=str(run_dir), log_dir=str(log_dir), cert_dir="/c")
    (run_dir / CONFIG_NAME).write_bytes(encode_effective(config, ""))
    return tmp_path


def line(second: int, text: str) -> str:
    return f"I0102 03:04:{second:02}.000000    4711 pleg/pods.py:7] {text}\n"


def logs(agent: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["logs", "--run-dir", str(agent / "run"), *words])


def test_records_of_services_are_merged_by_time_with_their_continuation_lines(agent: Path) -> None:
    (agent / "log" / "podsync.log").write_text(line(1, "one") + "\tmore of one\n" + line(3, "three"))
    (agent / "log" / "volume.log").write_text(line(2, "two"))
    shown = logs(agent, "--service", "all")
    assert shown.exit_code == 0
    assert [(text[:9].strip(), text.rsplit(maxsplit=1)[1]) for text in shown.stdout.splitlines()] == [
        ("podsync", "one"),
        ("podsync", "one"),
        ("volume", "two"),
        ("podsync", "three"),
    ]
    assert "\x1b" not in shown.stdout


def test_json_records_are_in_the_same_order(agent: Path) -> None:
    (agent / "log" / "podsync.log").write_text('{"ts":2000.0,"msg":"second"}\n{"ts":4000.0,"msg":"fourth"}\n')
    (agent / "log" / "volume.log").write_text('{"ts":1000.0,"msg":"first"}\n{"ts":3000.0,"msg":"third"}\n')
    shown = logs(agent, "--service", "podsync", "--service", "volume").stdout
    assert [word for word in ("first", "second", "third", "fourth") if word in shown] == sorted(
        ("first", "second", "third", "fourth"), key=shown.index
    )


@pytest.mark.parametrize(
    ("now", "records"),
    [
        ("2027-01-01", {"I0101": "2027", "I0102": "2027", "I0103": "2026", "E1231": "2026"}),
        ("2026-12-31", {"I0101": "2027", "I0102": "2026", "E1231": "2026"}),
        ("2026-07-01", {"I0101": "2026", "I0702": "2026", "I0703": "2025"}),
    ],
)
def test_the_records_of_the_year_before_come_first(now: str, records: dict[str, str]) -> None:
    today = datetime.fromisoformat(f"{now}T12:00:00+00:00")
    for record, year in records.items():
        line = f"{record} 03:04:05.000000    4711 pleg/pods.py:7] x".encode()
        assert time_of(line, today) == f"{year}{record[1:]} 03:04:05.000000"


def test_rotated_files_come_first_and_one_service_has_no_prefix(agent: Path) -> None:
    for name, number in (("podsync.log.2", 1), ("podsync.log.1", 2), ("podsync.log", 3)):
        (agent / "log" / name).write_text(line(number, f"number {number}"))
    shown = logs(agent, "--service", "podsync").stdout
    assert shown == "".join(line(number, f"number {number}") for number in (1, 2, 3))


def test_a_text_and_tail_choose_records(agent: Path) -> None:
    (agent / "log" / "podsync.log").write_text("".join(line(n, f"pod shop/web-{n % 2} turn {n}") for n in range(10)))
    chosen = logs(agent, "--service", "podsync", "shop/web-1", "--tail", "2").stdout.splitlines()
    assert [text.rsplit(maxsplit=1)[1] for text in chosen] == ["7", "9"]
    assert logs(agent, "--service", "podsync", "--tail", "0").stdout == ""


@pytest.mark.parametrize("words", [("-c", "main"), ("--since", "5m"), ("-p",), ("-n", "shop")])
def test_options_of_containers_are_wrong_usage_for_a_service(agent: Path, words: tuple[str, ...]) -> None:
    answer = logs(agent, "--service", "podsync", *words)
    assert answer.exit_code == 2 and f"{words[0]}: not with --service" in answer.stderr


@pytest.mark.parametrize("words", [(), ("web", "--since", "soon"), ("web", "--since", "-1s"), ("web", "--tail", "-1")])
def test_bad_words_are_wrong_usage(agent: Path, words: tuple[str, ...]) -> None:
    assert logs(agent, *words).exit_code == 2


def test_growth_is_read_over_a_rotation_and_a_line_in_two_halves(tmp_path: Path) -> None:
    path = tmp_path / "podsync.log"
    path.write_text(line(1, "one") + line(2, "two")[:20])
    log = ServiceLog(tmp_path, "podsync")
    assert [record[2] for record in log.growth()] == [line(1, "one").rstrip()]
    with path.open("a") as file:
        file.write(line(2, "two")[20:] + line(3, "three"))
    path.rename(tmp_path / "podsync.log.1")
    path.write_text(line(4, "four"))
    assert [record[2].rsplit(maxsplit=1)[1] for record in log.growth()] == ["two", "three", "four"]
    assert list(log.growth()) == []
    log.close()


@pytest.mark.long
def test_new_records_are_followed_until_ctrl_c(agent: Path) -> None:
    path = agent / "log" / "podsync.log"
    path.write_text(line(1, "one"))
    command = [sys.executable, "-m", "services.cli.command", "logs", "--service", "podsync", "-f"]
    handled = ["env", "--default-signal=INT"]  # a shell ignores SIGINT for what runs in the background
    with subprocess.Popen(
        [*handled, *command, "--run-dir", str(agent / "run")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stdout.readline() == line(1, "one")
        with path.open("a") as file:
            file.write(line(2, "two"))
        assert process.stdout.readline() == line(2, "two")
        process.send_signal(2)
        assert process.wait(DEADLINE) == 130


def test_without_an_agent_it_fails_with_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["logs", "--service", "all", "--run-dir", str(tmp_path)])
    assert result.exit_code == 1
    remedy = "start the agent, or name it with --run-dir"
    assert result.stderr == f"{tmp_path}/config.json: cannot be read: No such file or directory ({remedy})\n"


def test_a_text_that_no_record_contains_is_reported(agent: Path) -> None:
    (agent / "log" / "podsync.log").write_text(line(1, "one"))
    none = logs(agent, "--service", "podsync", "web")
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", f"{agent}/log: no record contains 'web'\n")
    assert logs(agent, "--service", "podsync", "--tail", "0").stderr == ""
