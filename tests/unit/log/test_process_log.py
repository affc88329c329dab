"""A service's log never blocks it, keeps the lines from before it is open, and copies them to the given stream."""

import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.frame.log_configuration import configure_log
from shared.config.effective import EffectiveConfig
from shared.log import process_log as module
from shared.log.klog import structured
from shared.log.log_copy import StreamCopy, adopt_stream
from shared.log.log_lines import JsonFormat, TextFormat
from shared.log.log_verbosity import CHATTY, Verbosity, verbose
from shared.log.process_log import LogFile, set_levels, start_log
from tests.support.waits.deadline import WAIT_SECONDS


@pytest.fixture
def handler(tmp_path: Path) -> Iterator[LogFile]:
    handler = LogFile("podsync", take_stdio=False)
    yield handler
    handler.finish(WAIT_SECONDS)


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back as it was."""
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in CHATTY}
    handlers, level = root.handlers[:], root.level
    records = logging.logThreads, logging.logProcesses, logging.logMultiprocessing
    yield root
    logging.captureWarnings(False)
    logging.logThreads, logging.logProcesses, logging.logMultiprocessing = records
    root.handlers[:], root.level = handlers, level
    root.setLevel(level)
    for name, was in levels.items():
        logging.getLogger(name).setLevel(was)


def record(text: str, level: int = logging.INFO, args: tuple[object, ...] = ()) -> logging.LogRecord:
    return logging.LogRecord("x", level, "/a/worker.py", 12, text, args, None)


def written(path: Path) -> list[str]:
    """The messages of a text log."""
    return [line.rpartition("] ")[2] for line in path.read_text().splitlines()]


def configured(**settings: object) -> EffectiveConfig:
    return EffectiveConfig(node_name="n", root_dir="", run_dir="", log_dir="", cert_dir="", **settings)  # type: ignore[arg-type]


def copy_to(path: Path) -> StreamCopy:
    """A copy to a file."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    copy = adopt_stream(str(fd), lambda count: b"%d lost\n" % count)
    assert copy
    return copy


def test_lines_before_the_directory_is_known_are_kept(handler: LogFile, tmp_path: Path) -> None:
    handler.emit(record("early"))
    handler.open(str(tmp_path / "log"))
    handler.emit(record("late"))
    handler.finish(WAIT_SECONDS)
    assert written(tmp_path / "log/podsync.log") == ["early", "late"]


def test_lines_before_the_configuration_is_known_come_out_in_its_form(handler: LogFile, tmp_path: Path) -> None:
    handler.emit(record(structured("early", pod="ns/web")))
    configure_log(handler, configured(logging_format="json"))
    handler.open(str(tmp_path))
    handler.finish(WAIT_SECONDS)
    found = json.loads((tmp_path / "podsync.log").read_text())
    assert (found["msg"], found["pod"], found["logger"]) == ("early", "ns/web", "podsync")


def test_an_argument_that_changes_later_does_not_change_the_line(handler: LogFile, tmp_path: Path) -> None:
    pods = ["a"]
    handler.emit(record("pods: %s", args=(pods,)))
    pods.append("b")
    handler.open(str(tmp_path))
    handler.finish(WAIT_SECONDS)
    assert written(tmp_path / "podsync.log") == ["['a']".join(("pods: ", ""))]


def test_a_full_queue_drops_and_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_MAX_QUEUED_RECORDS", 2)
    handler = LogFile("podsync", take_stdio=False)
    for _ in range(5):
        handler.emit(record("x"))
    assert handler.dropped == 3
    handler.open(str(tmp_path))
    handler.finish(WAIT_SECONDS)
    assert written(tmp_path / "podsync.log") == ["x", "x", "3 lines lost"]


def test_the_file_is_rotated_by_size(tmp_path: Path) -> None:
    handler = LogFile("podsync", max_bytes=100, kept=2, take_stdio=False)
    handler.open(str(tmp_path))
    handler._thread.join(0)
    for number in range(6):
        handler._write([f"{number}" + "x" * 120 + "\n"])
    handler.finish(WAIT_SECONDS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["podsync.log", "podsync.log.1", "podsync.log.2"]
    assert (tmp_path / "podsync.log").read_text().startswith("5")
    assert (tmp_path / "podsync.log.2").read_text().startswith("3")


def test_a_moved_file_is_created_again(handler: LogFile, tmp_path: Path) -> None:
    handler.open(str(tmp_path))
    (tmp_path / "podsync.log").rename(tmp_path / "elsewhere")
    handler.reopen()
    handler.emit(record("after"))
    handler.finish(WAIT_SECONDS)
    assert "after" in (tmp_path / "podsync.log").read_text()


def test_a_disk_that_refuses_costs_lines_not_the_process(handler: LogFile, tmp_path: Path) -> None:
    handler.open(str(tmp_path))
    good, handler._fd = handler._fd, 10**6
    handler._write(["x\n"])
    handler._write(["y\n", "z\n"])
    assert handler.dropped == 3
    handler._fd = good
    handler._write(["after\n"])
    assert written(tmp_path / "podsync.log") == ["after", "3 lines lost"]


def test_a_disk_that_becomes_full_within_a_line_spoils_no_other(
    handler: LogFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler.open(str(tmp_path))
    write = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda fd, data: write(fd, data[:6]))
        handler._write(["one\n", "two\n", "three\n"])
    assert handler.dropped == 2
    handler._write(["four\n"])
    assert written(tmp_path / "podsync.log") == ["one", "tw", "four", "2 lines lost"]


def test_finishing_an_unopened_log_does_not_hang() -> None:
    handler = LogFile("podsync", take_stdio=False)
    handler.emit(record("x"))
    handler.finish(WAIT_SECONDS)
    assert not any(thread is handler._thread for thread in threading.enumerate())


def test_flushing_waits_until_all_queued_lines_are_written(handler: LogFile, tmp_path: Path) -> None:
    handler.flush()  # not open yet: nothing to wait for
    handler.open(str(tmp_path))
    for number in range(1000):
        handler.emit(record(str(number)))
    handler.flush()
    assert written(tmp_path / "podsync.log")[-1] == "999"
    handler.finish(WAIT_SECONDS)
    handler.flush()  # the thread has ended: no hang


def test_a_record_no_form_can_show_ends_no_thread(handler: LogFile, tmp_path: Path) -> None:
    class Broken(TextFormat):
        def line(self, entry: object) -> str:
            if getattr(entry, "message", "") == "bad":
                raise ValueError
            return super().line(entry)  # type: ignore[arg-type]

    handler.configure(Broken("podsync"), Verbosity())
    handler.open(str(tmp_path))
    for text in ("before", "bad", "after"):
        handler.emit(record(text))
    handler.finish(WAIT_SECONDS)
    assert written(tmp_path / "podsync.log") == ["before", "1 lines lost", "after"]


def test_verbosity_is_part_of_a_json_line_and_decides_what_is_taken(handler: LogFile, tmp_path: Path) -> None:
    handler.configure(JsonFormat("podsync"), Verbosity(1, (("work*", 5),)))
    handler.open(str(tmp_path))
    for level in (logging.INFO, verbose(1), logging.DEBUG, verbose(6), logging.ERROR):
        handler.emit(record("x", level))
    handler.finish(WAIT_SECONDS)
    found = [json.loads(line).get("v") for line in (tmp_path / "podsync.log").read_text().splitlines()]
    assert found == [0, 1, 4, None]


@pytest.mark.parametrize("form", [TextFormat("podsync"), JsonFormat("podsync")])
def test_the_copy_has_the_lines_of_the_file(handler: LogFile, tmp_path: Path, form: TextFormat | JsonFormat) -> None:
    handler.stderr = copy_to(tmp_path / "stderr")
    handler.configure(form, Verbosity())
    handler.emit(record("early"))
    handler.open(str(tmp_path))
    handler.emit(record("two\nlines", logging.ERROR))
    handler.finish(WAIT_SECONDS)
    assert (tmp_path / "stderr").read_text() == (tmp_path / "podsync.log").read_text()


@pytest.mark.parametrize("has_stdout", [True, False])
def test_info_is_split_off_where_there_is_an_output(handler: LogFile, tmp_path: Path, has_stdout: bool) -> None:
    handler.stderr = copy_to(tmp_path / "stderr")
    handler.stdout = copy_to(tmp_path / "stdout") if has_stdout else None
    configure_log(handler, configured(log_split_stream=True, log_info_buffer_size=1000, log_flush_frequency=3600.0))
    handler.open(str(tmp_path))
    for level in (logging.INFO, logging.WARNING, logging.ERROR):
        handler.emit(record(logging.getLevelName(level), level))
    handler.finish(WAIT_SECONDS)
    assert written(tmp_path / "podsync.log") == ["INFO", "WARNING", "ERROR"]
    assert written(tmp_path / "stderr") == (["WARNING", "ERROR"] if has_stdout else ["INFO", "WARNING", "ERROR"])
    assert not has_stdout or written(tmp_path / "stdout") == ["INFO"]


def test_without_a_file_the_copy_goes_on_and_the_file_follows(handler: LogFile, tmp_path: Path) -> None:
    handler.stderr = copy_to(tmp_path / "stderr")
    (tmp_path / "log").write_text("in the way")
    with pytest.raises(OSError, match="exists"):
        handler.open(str(tmp_path / "log"))
    handler.go_without_file()
    handler.emit(record("to the copy"))
    handler.flush()
    (tmp_path / "log").unlink()
    (tmp_path / "log").mkdir()
    handler.emit(record("to both"))
    handler.finish(WAIT_SECONDS)
    assert written(tmp_path / "stderr") == ["to the copy", "to both"]
    assert written(tmp_path / "log/podsync.log") == ["to both", "1 lines lost"]


def test_a_service_adopts_the_operators_streams(
    root: logging.Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = os.open(tmp_path / "stderr", os.O_WRONLY | os.O_CREAT)
    monkeypatch.setenv("BULKHEAD_STDERR_FD", str(fd))
    monkeypatch.setenv("BULKHEAD_STDOUT_FD", "999999")
    handler = start_log("podsync")
    handler._take_stdio = False
    assert root.handlers == [handler] and handler.stdout is None
    configure_log(handler, configured(verbosity=5, vmodule=(("x", 8),)))
    assert root.level == logging.DEBUG and logging.getLogger("aiohttp").level == logging.NOTSET
    handler.open(str(tmp_path))
    logging.getLogger("services.x").debug("hello %s", "world")
    logging.getLogger("aiohttp.x").info("not to be seen")
    handler.finish(WAIT_SECONDS)
    assert written(tmp_path / "stderr") == written(tmp_path / "podsync.log") == ["hello world"]


def test_without_the_variables_there_is_no_copy(root: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BULKHEAD_STDERR_FD", raising=False)
    monkeypatch.delenv("BULKHEAD_STDOUT_FD", raising=False)
    handler = start_log("podsync")
    assert handler.stderr is None and handler.stdout is None
    assert not root.isEnabledFor(logging.DEBUG) and logging.getLogger("aiohttp").level == logging.WARNING
    handler.finish(WAIT_SECONDS)


def test_a_level_that_holds_already_is_not_set_again(root: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    set_levels(Verbosity())
    log, changed = logging.getLogger("services.podsync"), []
    assert not log.isEnabledFor(logging.DEBUG)
    monkeypatch.setattr(logging.Logger, "setLevel", lambda self, level: changed.append(self.name))
    for same in range(4):
        set_levels(Verbosity(same))
    assert changed == []
    monkeypatch.undo()
    set_levels(Verbosity(4))
    assert log.isEnabledFor(logging.DEBUG)
