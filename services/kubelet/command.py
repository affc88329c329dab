"""Runs the command `kubelet`: from argv to a supervised agent in one process, with a kubelet's exit codes (config.md
3.9).

A forked child evaluates the command line while this process loads supervisord and the services' modules, on the other
core. What the child needs is imported before the fork, because the services need it, too."""

import contextlib
import fcntl
import json
import os
import select
import shlex
import signal
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, NoReturn

from shared.process.standard_streams import open_standard_streams

STANDARD_ERROR, STANDARD_OUTPUT = "BULKHEAD_STDERR_FD", "BULKHEAD_STDOUT_FD"
# With one of these words usually nothing is started. What a start needs is then imported only when it is certain.
_PRINTING = frozenset(("-h", "--help", "--version", "--version=true", "--version=raw"))


def main() -> int:
    """Run the agent until it ends. Return the exit code: 0 after a signal, 1 if refused or after a second signal, 2 for
    bad gates."""
    arguments = sys.argv[1:]
    os.umask(0o022)  # whatever the caller's umask is, only our user may write to our files
    open_standard_streams()
    _take_the_name()
    signal.signal(signal.SIGTERM, _end_before_the_start)
    signal.signal(signal.SIGINT, _end_before_the_start)
    # Until supervisord handles it: what a reload would read is being read now.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # The child is forked after the signals are handled, because a stop may come meanwhile.
    from services.kubelet.evaluation_child import prepare_start

    child, answer = _fork_evaluation(partial(prepare_start, arguments, os.getpid()))
    try:
        if not _PRINTING.intersection(arguments):
            import services.kubelet.supervision  # noqa: F401  meanwhile
            from services.frame.preloading import import_modules

            import_modules(stop=lambda: bool(select.select([answer], [], [], 0)[0]))
        prepared = _read(answer)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except SystemExit:
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
        raise
    if code != 0 or not prepared:
        return code if code >= 0 else 1
    place = json.loads(prepared)
    environment = {STANDARD_ERROR: _inheritable(2), STANDARD_OUTPUT: _inheritable(1)}
    if arguments:
        environment["KUBELET_ARGS"] = shlex.join(arguments)
    if path := place["lock_file"]:
        from shared.agent.lock_file import HELD, hold

        try:
            hold(path)
        except OSError as error:
            return _fail(f"--lock-file: {path}: {error.strerror} (give a path this user may write to)")
        environment[HELD] = path
    os.environ.update(environment)
    # Otherwise every process would compile all its modules at every start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    kept = [int(environment[name]) for name in (STANDARD_ERROR, STANDARD_OUTPUT)]
    from services.kubelet.supervision import supervise

    code = supervise(place["supervisord_conf"], kept, _fail)
    for number in (signal.SIGTERM, signal.SIGINT):
        # Python restores the default while it ends, and another signal would change the exit code.
        signal.signal(number, signal.SIG_IGN)
    if code == 0 and (form := place.get("run_once")):
        from services.kubelet.run_once import print_result

        code = print_result(os.path.dirname(place["supervisord_conf"]), form)  # noqa: PTH120  pathlib costs memory
    return code


def _fork_evaluation(prepare: Callable[[], tuple[int, dict[str, Any]]]) -> tuple[int, int]:
    """Fork the child that evaluates. Return its process id, and the descriptor to read its answer from; an empty answer
    = there is nothing to start."""
    answer, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answer)
        _evaluate(prepare, write)
    os.close(write)
    return child, answer


def _evaluate(prepare: Callable[[], tuple[int, dict[str, Any]]], write: int) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    code = 1
    try:
        code, prepared = prepare()
        if prepared:
            os.write(write, json.dumps(prepared).encode())  # a few paths, which fit into any pipe
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass  # the reader has closed the pipe, as in `kubelet --help | head`
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _read(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()


def _fail(line: str) -> int:
    from services.kubelet.console import Console

    Console(os.getpid()).failed(line)
    return 1


def _end_before_the_start(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _take_the_name() -> None:
    with contextlib.suppress(OSError):
        fd = os.open("/proc/self/comm", os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, b"kubelet")
        os.close(fd)


def _inheritable(fd: int) -> str:
    """Return another descriptor of the same stream, with a number above the standard ones, that stays open in the
    services."""
    return str(fcntl.fcntl(fd, fcntl.F_DUPFD, 3))
