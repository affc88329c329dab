"""The files podsync makes for a pod, and the pod's story."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.podsync.adapters.node_facts_reader import HostFiles
from services.podsync.adapters.pod.pod_directories import PodDirectories
from services.podsync.adapters.story import MAX_FILE_BYTES, StoryFiles
from services.podsync.core.node.node_facts import NodeFacts
from services.podsync.core.pod.events import PodDesired, PodUndesired


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def directories(tmp_path: Path) -> PodDirectories:
    return PodDirectories(tmp_path / "root", tmp_path / "log" / "pods")


def test_the_directories_have_the_kubelets_modes_and_show_earlier_attempts(tmp_path: Path) -> None:
    places = directories(tmp_path)
    assert places.prepare("ns", "web", "u1", ["c", "d"]) == {}
    logs = tmp_path / "log/pods/ns_web_u1"
    assert (mode(tmp_path / "root/pods/u1"), mode(logs), mode(logs / "c")) == (0o750, 0o755, 0o755)
    for name in ("0.log", "3.log", "2.log.20260101-000000.gz", "note.txt"):
        (logs / "c" / name).touch()
    assert places.prepare("ns", "web", "u1", ["c", "d"]) == {"c": 3}


def test_directories_that_a_kill_left_with_another_mode_get_theirs(tmp_path: Path) -> None:
    places, containers = directories(tmp_path), tmp_path / "root/pods/u1/containers"
    logs = tmp_path / "log/pods/ns_web_u1/c"
    for path in (containers / "c", logs):
        path.mkdir(parents=True)
    for path in (containers, containers / "c", logs.parent, logs):
        path.chmod(0o700 if path.is_relative_to(tmp_path / "log") else 0o755)
    places.prepare("ns", "web", "u1", ["c"])
    places.new_termination_file("u1", "c", "0badcafe")
    assert [mode(path) for path in (containers, containers / "c", logs.parent, logs)] == [0o750, 0o750, 0o755, 0o755]


def test_the_directory_of_all_logs_keeps_the_mode_that_the_operator_gave_it(tmp_path: Path) -> None:
    (tmp_path / "log/pods").mkdir(parents=True)
    (tmp_path / "log/pods").chmod(0o750)
    directories(tmp_path).prepare("ns", "web", "u1", ["c"])
    assert mode(tmp_path / "log/pods") == 0o750


def test_a_termination_file_is_empty_and_open_to_everyone(tmp_path: Path) -> None:
    path = Path(directories(tmp_path).new_termination_file("u1", "c", "0badcafe"))
    assert path == tmp_path / "root/pods/u1/containers/c/0badcafe"
    assert mode(path) == 0o666 and path.read_text() == ""


def test_the_hosts_file_is_rewritten_in_place_because_it_is_mounted(tmp_path: Path) -> None:
    places = directories(tmp_path)
    places.prepare("ns", "web", "u1", [])
    first = Path(places.write_etc_hosts("u1", "one\n")).stat().st_ino
    again = Path(places.write_etc_hosts("u1", "two\n"))
    assert again.stat().st_ino == first and again.read_text() == "two\n"


def test_on_a_full_disk_running_containers_keep_the_hosts_file_they_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = directories(tmp_path)
    places.prepare("ns", "web", "u1", [])
    path = Path(places.write_etc_hosts("u1", "one\n"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("posix_fallocate", "pwrite", "ftruncate"):
        monkeypatch.setattr(os, name, full)
    places.write_etc_hosts("u1", "one\n")
    with pytest.raises(OSError, match="No space"):
        places.write_etc_hosts("u1", "one and two\n")
    assert path.read_text() == "one\n"


def test_what_a_container_wrote_into_its_hosts_file_is_gone_at_the_next_start(tmp_path: Path) -> None:
    places = directories(tmp_path)
    places.prepare("ns", "web", "u1", [])
    path = Path(places.write_etc_hosts("u1", "one\n"))
    os.truncate(path, 1 << 40)  # of no blocks: not read to the end
    assert Path(places.write_etc_hosts("u1", "two\n")).read_text() == "two\n"


def test_log_links_fit_a_file_name_and_go_with_the_container_and_the_pod(tmp_path: Path) -> None:
    places = directories(tmp_path)
    places.prepare("ns", "web", "u1", ["c"])
    log = tmp_path / "log/pods/ns_web_u1/c/0.log"
    log.touch()
    places.link_log("ns", "x" * 250, "c", "f" * 64, str(log))
    (link,) = places.log_links.iterdir()
    assert link.resolve() == log and len(link.name) == 255 and link.name.endswith(f"-c-{'f' * 64}.log"[-69:])
    places.remove_container_logs("ns", "x" * 250, "c", "f" * 64, str(log))
    assert not log.exists() and not list(places.log_links.iterdir())
    log.touch()
    places.link_log("ns", "web", "c", "a" * 64, str(log))
    places.remove_pod_logs("ns", "web", "u1")
    assert not log.parent.exists() and not list(places.log_links.iterdir())


def test_a_removed_pod_costs_no_read_of_the_links_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, read = directories(tmp_path), list[str]()
    long = "x" * 200
    for uid, name in enumerate(("web", "web2", "other", long)):
        places.prepare("ns", name, f"u{uid}", ["c" * 63])
        log = tmp_path / f"log/pods/ns_{name}_u{uid}/{'c' * 63}/0.log"
        log.touch()
        places.link_log("ns", name, "c" * 63, f"{uid:064}", str(log))
    readlink = os.readlink
    monkeypatch.setattr(os, "readlink", lambda path: read.append(str(path)) or readlink(path))  # type: ignore[func-returns-value]
    for uid, name in enumerate(("web", "web2", "other", long)):
        places.remove_pod_logs("ns", name, f"u{uid}")
        assert len(list(places.log_links.iterdir())) == 3 - uid
    assert len(read) == 4


def test_a_removed_container_costs_no_look_at_the_links_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, listed = directories(tmp_path), list[str]()
    places.prepare("ns", "web", "u1", ["c"])
    log = tmp_path / "log/pods/ns_web_u1/c/0.log"
    log.touch()
    for number in range(20):
        places.link_log("ns", "web", "c", f"{number:064}", str(log))

    def counted(listing: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda path: listed.append(str(path)) or listing(path)  # type: ignore[func-returns-value]

    monkeypatch.setattr(os, "scandir", counted(os.scandir))
    monkeypatch.setattr(os, "listdir", counted(os.listdir))
    for number in range(19):
        places.remove_container_logs("ns", "web", "c", f"{number:064}", "")
    assert str(places.log_links) not in listed
    assert [link.name for link in places.log_links.iterdir()] == [f"web_ns_c-{19:064}.log"]


def test_a_story_is_bounded_by_two_files_and_the_newest_lines_stay(tmp_path: Path) -> None:
    book = StoryFiles(tmp_path)
    event = PodUndesired(uid="u1", cause="x" * 1000)
    for number in range(400):
        book.add("u1", float(number), event)
    book.close()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["u1.1.jsonl", "u1.jsonl"]
    assert all(file.stat().st_size <= MAX_FILE_BYTES for file in files)
    assert '"at":399.0' in files[1].read_text()


def test_a_cause_that_is_not_unicode_leaves_no_gap_in_the_story(tmp_path: Path) -> None:
    book = StoryFiles(tmp_path)
    book.add("u1", 1.0, PodUndesired(uid="u1", cause="cannot remove caf\udce9"))
    book.close()
    assert '"cause":"cannot remove caf\\\\xe9"' in (tmp_path / "u1.jsonl").read_text()


def test_a_story_never_contains_the_pods_spec(tmp_path: Path) -> None:
    pod = {"metadata": {"name": "web"}, "spec": {"containers": [{"env": [{"name": "KEY", "value": "hush"}]}]}}
    book = StoryFiles(tmp_path)
    book.add("u1", 1.0, PodDesired(uid="u1", source="file", pod=pod, cause="seen"))
    book.close()
    assert "hush" not in (tmp_path / "u1.jsonl").read_text()


def test_a_story_that_cannot_be_written_keeps_no_other_from_being_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    book = StoryFiles(tmp_path / "stories")
    (tmp_path / "stories" / "u1.jsonl").mkdir(parents=True)
    for uid in ("u1", "u2"):
        book.add(uid, 1.0, PodUndesired(uid=uid))
    book.close()
    assert (tmp_path / "stories" / "u2.jsonl").read_text()
    assert "u1.jsonl" in caplog.text


def test_a_disk_that_keeps_old_stories_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def refused(path: Path, missing_ok: bool = False) -> None:
        tried.append(path.name)
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("services.podsync.adapters.story.MAX_OLD_STORIES", 0)
    book = StoryFiles(tmp_path)
    (tmp_path / "gone.jsonl").write_text("{}\n")
    monkeypatch.setattr(Path, "unlink", refused)
    book.keep_newest(set())
    assert tried == ["gone.jsonl"]


def test_the_hosts_files_are_read_again_when_they_have_changed_and_only_then(tmp_path: Path) -> None:
    resolv_conf = tmp_path / "resolv.conf"
    resolv_conf.write_text("nameserver 10.0.0.1\n")
    files, facts = HostFiles(), NodeFacts(node_name="n")
    first = files.add_to(facts, str(resolv_conf))
    assert first.resolv_conf == "nameserver 10.0.0.1\n"
    assert files.add_to(facts, str(resolv_conf)) is first
    resolv_conf.write_text("nameserver 10.0.0.22\n")
    assert files.add_to(facts, str(resolv_conf)).resolv_conf == "nameserver 10.0.0.22\n"
    resolv_conf.unlink()
    assert "no such file" in files.add_to(facts, str(resolv_conf)).resolv_conf_error


def test_forgetting_many_pods_lists_the_stories_once_in_a_hundred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []

    def glob(path: Path, pattern: str) -> list[Path]:
        listed.append(pattern)
        return []

    monkeypatch.setattr(Path, "glob", glob)
    book = StoryFiles(tmp_path)
    for _ in range(1000):
        book.keep_newest(set())
    assert len(listed) == 10
