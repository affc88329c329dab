"""Which log files go, which are packed, and how a rotated one is called."""

from datetime import datetime

import pytest

from services.podsync.core.log_rotation import (
    LogLimits,
    RotatedFiles,
    before_rotation,
    is_due,
    is_ours_alone,
    pod_of_directory,
    removable_directories,
    removable_links,
    rotated_name,
    rotated_of,
    unfinished_files,
    written_logs,
)
from shared.model.runtime import Container, ContainerState

LIMITS = LogLimits(size=100, files=5)
NOW = datetime(2030, 1, 2, 3, 4, 5)  # noqa: DTZ001 - file names have local time


@pytest.mark.parametrize(
    ("size", "limit", "due"), [(99, 100, False), (100, 100, True), (10**9, -1, False), (0, 0, True), (0, 1, False)]
)
def test_a_log_is_due_at_its_size_and_never_where_the_size_is_negative(size: int, limit: int, due: bool) -> None:
    assert is_due(size, LogLimits(size=limit, files=2)) is due


def test_files_of_another_attempt_and_the_log_itself_are_not_rotated_files() -> None:
    names = ["0.log", "10.log.20300101-000000", "0.log.20300101-000001", "0.log.20300101-000000.gz", "0.logs"]
    assert rotated_of("0.log", names) == ["0.log.20300101-000000.gz", "0.log.20300101-000001"]


def test_what_a_kill_left_is_useless() -> None:
    assert unfinished_files(["a.tmp", "b", "b.gz", "c.gz", "d"]) == ["a.tmp", "b"]


def test_the_oldest_go_and_the_rest_is_packed() -> None:
    rotated = ["1.gz", "2.gz", "3", "4"]
    assert before_rotation(rotated, LIMITS) == RotatedFiles(remove=("1.gz",), pack=("3", "4"))


@pytest.mark.parametrize("files", [2, 3, 5, 10])
def test_log_and_rotated_files_are_never_more_than_the_configured_number(files: int) -> None:
    limits, rotated = LogLimits(size=1, files=files), list[str]()
    for number in range(20):
        todo = before_rotation(rotated, limits)
        rotated = [name for name in rotated if name not in todo.remove]
        rotated = [f"{name}.gz" if name in todo.pack else name for name in rotated]
        rotated.append(f"{number:03}")
        assert len(rotated) + 1 <= files
        assert [name for name in rotated if not name.endswith(".gz")] == [f"{number:03}"]
    assert len(rotated) + 1 == files


@pytest.mark.parametrize(
    ("taken", "name"),
    [
        ([], "0.log.20300102-030405"),
        (["0.log.20300102-030405"], "0.log.20300102-030406"),
        (["0.log.20300102-030405.gz"], "0.log.20300102-030406"),
        (["0.log.20300102-030404", "0.log.strange", "0.log.20309999-000000"], "0.log.20300102-030405"),
        (["0.log.99991231-235959"], "0.log.20300102-030405"),
        (["0.log.20310102-000000", "0.log.20300102-030409.gz"], "0.log.20310102-000001"),
    ],
)  # fmt: skip
def test_a_rotated_file_sorts_behind_all_others(taken: list[str], name: str) -> None:
    assert rotated_name("0.log", taken, NOW) == name


def test_only_logs_of_running_containers_are_looked_at() -> None:
    containers = [
        Container(
            id=f"{state.value}{path}", name="c", attempt=0, sandbox_id="s", state=state, created_at=1, log_path=path
        )
        for state in ContainerState
        for path in ("/log", "")
    ]
    assert written_logs(containers) == {"RUNNING/log": "/log"}


@pytest.mark.parametrize(
    ("name", "uid"),
    [
        ("default_web_0d8f", "0d8f"),
        ("lost+found", ""),
        ("a_b", ""),
        ("a_b_c_d", ""),
        ("_b_c", ""),
        ("", ""),
        (".a_b_c", ""),
    ],
)
def test_the_name_of_a_log_directory_has_the_pods_uid(name: str, uid: str) -> None:
    assert pod_of_directory(name) == uid


def test_directories_of_unknown_pods_go_and_strangers_stay() -> None:
    names = ["a_b_known", "a_b_gone", "strange", ".removing-a_b_known", ".hidden"]
    assert removable_directories(names, {"known"}) == [".removing-a_b_known", "a_b_gone"]


def test_links_of_existing_containers_stay_while_their_log_is_being_rotated() -> None:
    dangling = ["web_default_app-1a2b.log", "web_default_app-3c4d.log", "other"]
    assert removable_links(dangling, {"1a2b"}) == ["web_default_app-3c4d.log"]


@pytest.mark.parametrize(
    ("directory", "embedded", "ours"),
    [
        ("/var/log/pods", False, True),
        ("/var/log/pods", True, False),
        ("/var/log/pods/", True, False),
        ("/srv/logs", True, True),
    ],
)
def test_logs_of_a_kubelet_beside_an_embedded_containerd_are_left_alone(
    directory: str, embedded: bool, ours: bool
) -> None:
    assert is_ours_alone(directory, embedded=embedded) is ours
