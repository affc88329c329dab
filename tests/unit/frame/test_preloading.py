"""Services started as forks of supervisord: which command lines, and that a fork behaves like an exec."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.messages.services import SERVICES
from services.frame.preloading import _MODULES, module_of, process_name

PYTHON = f"{sys.prefix}/bin/python"
PODSYNC = [PYTHON, "-P", "-m", "services.podsync"]
_FORKS = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from services.frame import preloading as loading
from services.frame.preloading import Preloading

found = loading._files
loading._files = lambda: {file for file in found() if file.startswith(sys.argv[1])}  # an installer may link all others
preloading = Preloading(lambda file, argv, env: os._exit(99), kept=[int(sys.argv[2])])
preloading.load(["services.fork_by_test"])
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
sys.stderr = sys.__stderr__ = open(2, "w", closefd=False)  # holds back what is written, as in the background
sys.stderr.write("supervisord's own")
read, write = os.pipe()
signal.set_wakeup_fd(write, warn_on_full_buffer=False) if os.set_blocking(write, False) is None else None
for line in sys.stdin:
    if line.startswith("again"):  # as at a reload
        preloading = Preloading(lambda file, argv, env: os._exit(99), kept=[int(sys.argv[2])])
        preloading.load(["services.fork_by_test"])
    dropped = [open("/dev/null") for _ in range(30)]
    dropped.append(dropped)
    del dropped
    child = os.fork()
    if child == 0:
        argv = [sys.prefix + "/bin/python", "-P", "-m", "services.fork_by_test"]
        preloading(argv[0], argv, {"PATH": os.environ["PATH"], "CHANGED": "new", "REPORT_FD": line.strip()})
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
_REPORTING = """
import gc, json, os, signal, sys
IMPORTED_BY = os.getpid()
def taken_away():
    ours = [os.open("/dev/null", os.O_RDONLY) for _ in range(40)]
    gc.collect()
    return [number for number in ours if not os.path.exists(f"/proc/self/fd/{number}")]
if __name__ == "__main__":
    kept = int(os.environ["REPORT_FD"])
    report = {
        "pid": os.getpid(), "imported_by": sys.modules["services.fork_by_test"].IMPORTED_BY,
        "environment": dict(os.environ),
        "comm": open("/proc/self/comm").read().strip(), "argv": sys.argv,
        "fds": sorted(int(n) for n in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + n)),
        "term": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "usr1": signal.getsignal(signal.SIGUSR1).name,
        "wakeup": signal.set_wakeup_fd(-1), "taken_away": taken_away(), "frozen": gc.get_freeze_count(),
    }
    sys.stderr.write("written at the end")
    os.write(kept, json.dumps(report).encode() + b"\\n")
    sys.exit(7)
"""
_EDITED = _REPORTING + "else:\n    open(__file__, 'a').write('# edited')\n"


@pytest.mark.parametrize(
    "file, argv, module",
    [
        (PYTHON, PODSYNC, "services.podsync"),
        (PYTHON, [PYTHON, "-m", "services.bootstrap.containerd"], "services.bootstrap.containerd"),
        ("/usr/bin/python3", ["/usr/bin/python3", "-P", "-m", "services.podsync"], None),
        (PYTHON, [PYTHON, "-m", "http.server"], None),
        (PYTHON, [PYTHON, "-X", "dev", "-m", "services.podsync"], None),
        (PYTHON, [*PODSYNC, "--flag"], None),
        (PYTHON, [PYTHON, "-P", "-m"], None),
        ("/bin/sleep", ["/bin/sleep", "1"], None),
    ],
)
def test_only_our_modules_under_our_own_python_with_no_further_options_are_forked(
    file: str, argv: list[str], module: str | None
) -> None:
    assert module_of(file, argv) == module


class Forks:
    """A process that preloads one module, and forks it for every line."""

    def __init__(self, directory: Path, program: str = _REPORTING) -> None:
        self.module = directory / "services" / "fork_by_test.py"
        self.module.parent.mkdir()
        self.module.write_text(program)
        (directory / "sitecustomize.py").write_text(
            "import services\nservices.__path__.append(__file__[:-16] + 'services')\n"
        )
        read, write = os.pipe()
        self.reports, self._kept = os.fdopen(read), write
        self.stderr = directory / "stderr"
        with self.stderr.open("w") as stderr:
            self.process = subprocess.Popen(
                [PYTHON, "-c", _FORKS, str(directory), str(write)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, pass_fds=[write],
                env={**os.environ, "PYTHONPATH": f"{directory}:{Path.cwd()}", "CHANGED": "old"},
            )  # fmt: skip
        os.close(write)

    def fork(self, how: str = "") -> int:
        """The exit code of one child; 99 where it would have been executed. `how`: `again` loads once more before."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{how or self._kept}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()
        self.reports.close()


@pytest.fixture
def forks(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Forks]:
    running = Forks(tmp_path, getattr(request, "param", _REPORTING))
    yield running
    running.end()


def test_a_forked_service_looks_like_an_executed_one(forks: Forks) -> None:
    assert forks.fork() == 7
    report = json.loads(forks.reports.readline())
    assert report["imported_by"] == forks.process.pid != report["pid"]
    assert report["comm"] == "bulkhead-fork_b" and report["argv"][1:] == []
    assert set(report["environment"]) == {"PATH", "CHANGED", "REPORT_FD"} and report["environment"]["CHANGED"] == "new"
    assert report["fds"] == [0, 1, 2, int(report["environment"]["REPORT_FD"])]
    assert report["term"] and report["wakeup"] == -1
    assert report["frozen"] > 1000, "a collection would write to memory that is shared"
    assert report["usr1"] == signal.SIG_IGN.name, "an exec keeps ignored signals ignored"


def test_the_output_of_a_service_is_written_and_no_buffered_output_of_supervisord(forks: Forks) -> None:
    assert forks.fork() == 7
    output = forks.stderr.read_text()
    assert output.endswith("written at the end") and "supervisord's own" not in output


def test_what_supervisord_dropped_closes_no_descriptor_of_the_service(forks: Forks) -> None:
    assert forks.fork() == 7
    assert json.loads(forks.reports.readline())["taken_away"] == []


def test_a_module_that_was_edited_or_removed_meanwhile_is_executed_by_a_new_interpreter(forks: Forks) -> None:
    assert forks.fork() == 7
    forks.reports.readline()
    later = time.time() + 5
    os.utime(forks.module, (later, later))
    assert forks.fork() == 99
    forks.module.unlink()
    assert forks.fork() == 99


def test_a_module_that_cannot_be_imported_is_left_to_the_process_that_needs_it(tmp_path: Path) -> None:
    script = "\n".join((
        "import sys", "from services.frame.preloading import Preloading",
        "p = Preloading(); p.load(['services.frame.exit_codes', 'services.not_there'])",
        "print('services.frame.exit_codes' in sys.modules)",
    ))  # fmt: skip
    done = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n" and done.stderr == ""


def test_a_supervisord_that_runs_some_services_imports_what_its_configuration_names() -> None:
    script = "\n".join((
        "import sys", "from unittest.mock import MagicMock", "from services.frame.preloading import make",
        "make(MagicMock(), modules='services.frame.exit_codes services.frame.launch')",
        "print('services.frame.launch' in sys.modules, 'services.bootstrap.service' in sys.modules)",
    ))  # fmt: skip
    done = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n" and done.stderr == ""


def test_what_a_reload_of_supervisord_finds_edited_is_still_old_in_memory(forks: Forks) -> None:
    assert forks.fork() == 7
    later = time.time() + 5
    os.utime(forks.module, (later, later))
    assert forks.fork("again") == 99


@pytest.mark.parametrize("forks", [_EDITED], indirect=True)
def test_what_is_edited_while_it_is_imported_may_be_old_in_memory(forks: Forks) -> None:
    assert forks.fork() == 99


def test_what_is_edited_as_soon_as_the_imports_begin_may_be_old_in_memory(tmp_path: Path) -> None:
    """The clock of files is some milliseconds behind: an edit may seem to come before it."""
    script = "\n".join((
        "import sys, time", "from pathlib import Path", "from services.frame import preloading",
        "files = [Path(sys.argv[1], str(number)) for number in range(20)]",
        "for file in files:",
        "    file.write_text('as imported')",
        "for file in files:",
        "    time.sleep(0.007)  # the edits come at different times of a tick of the kernel's clock",
        "    began = preloading._now()",
        "    with file.open('a') as edited:",
        "        edited.write('# edited')",
        "    assert preloading._was_touched_since(began, str(file))",
    ))  # fmt: skip
    subprocess.run([PYTHON, "-c", script, str(tmp_path)], check=True)


def test_a_signal_that_comes_before_the_program_has_begun_ends_it() -> None:
    script = "\n".join((
        "import os, signal", "from services.frame.preloading import Preloading",
        "signal.signal(signal.SIGTERM, lambda *_: None)",
        "p = Preloading(lambda *_: os.kill(os.getpid(), signal.SIGTERM))", "p('/bin/sleep', ['/bin/sleep', '1'], {})",
    ))  # fmt: skip
    assert subprocess.run([PYTHON, "-c", script], check=False).returncode == -signal.SIGTERM


def test_the_names_of_the_processes_differ_within_what_the_kernel_keeps_and_begin_with_one_word() -> None:
    names = [process_name(module.removesuffix(".service")) for module in _MODULES if module != "services.frame.launch"]
    assert len(set(names)) == len(names) == len(SERVICES) + 1  # the keeper of containerd, too
    assert [name for name in names if len(name.encode()) > 15 or not name.startswith("bulkhead-")] == []
