"""Starts services by forking supervisord, where their modules are in memory already: one copy for all, and no imports.
It is a plug-in of supervisord: `make` is the rpcinterface factory that supervisord.conf names. It runs our programs in
the forked child in the same way as they run when they are executed. A program that is none of ours, one with the
interpreter of another environment, and one with a module whose file has changed are executed. Decides nothing about
restarts.
"""

import contextlib
import functools
import gc
import importlib
import itertools
import os
import runpy
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from services.frame.generation import SUPERVISORD, generation_of
from services.frame.prompt_restarts import restart_promptly

_PACKAGE = "services."
_SERVICES = ("bootstrap", "sources", "volume", "pleg", "podsync", "status", "server")
_MODULES = (
    *(f"services.{name}.service" for name in _SERVICES),
    "services.bootstrap.containerd",
    "services.frame.launch",
)
_FIRST_FD = 3
_MAX_NAME_CHARACTERS = 15  # TASK_COMM_LEN without the final NUL
_END = "\0"  # a character that no file's name has
Execute = Callable[[str, list[str], Mapping[str, str]], object]
_Stamp = tuple[int, int, int]  # when a file was changed (ns), its size, its inode
_CLOCK_OF_FILES = 5  # CLOCK_REALTIME_COARSE, which the module time does not name


def _now() -> int:
    """Return the nanoseconds of the clock of file times, which is some milliseconds behind `time.time_ns`."""
    return time.clock_gettime_ns(_CLOCK_OF_FILES)


_BEGAN = _now()  # about when the first of our modules was imported
_loads = itertools.count(1)  # how often supervisord has read its configuration: it restarts all services after each
_STAMPS: dict[str, _Stamp | None] = {}  # by file of each module in this process, as it was when it was loaded


class Preloading:
    """Replaces supervisord's execve in the forked child. `load` is called before the first fork.
    The argument `load`: how often this supervisord has loaded its configuration."""

    def __init__(self, execute: Execute = os.execve, kept: Sequence[int] = (), load: int = 1) -> None:
        self._execute, self._kept, self._load = execute, frozenset(kept), load
        # All of _STAMPS in one text: reading thousands of objects would write to each, and copy their pages.
        self._noted = ""
        self._parent, self._generation = 0, ""

    def load(self, modules: Sequence[str] = _MODULES) -> None:
        """Import the modules and note the files as they are now."""
        began = _now() if _STAMPS else _BEGAN
        import_modules(modules)
        _prepare()
        for file in _files() - _STAMPS.keys():
            _STAMPS[file] = None if _was_touched_since(began, file) else _stamp(file)
        self._noted = "".join(f"{file}{_END}{stamp}{_END}" for file, stamp in _STAMPS.items())
        gc.collect()
        gc.freeze()  # a collection in a child would write to every object, and so copy every page

    def before_fork(self) -> None:
        """Note the generation before a fork: the child may be an orphan before it can read its parent."""
        if (parent := os.getpid()) != self._parent:  # supervisord in the background is another process
            self._parent, self._generation = parent, generation_of(parent, self._load)

    def __call__(self, file: str, argv: list[str], env: Mapping[str, str]) -> None:
        """Become the program. Never returns; raises OSError as execve does where it cannot be executed."""
        _reset_signals()  # at first, because until then a signal for the program goes into a list that is not read
        if self._generation:
            env = {**env, SUPERVISORD: self._generation}
        module = module_of(file, argv)
        if module is None or not self._noted or self._has_changed():
            self._execute(file, argv, env)
        else:
            self._become(module, env)

    def _has_changed(self) -> bool:
        start = 0
        while start < len(self._noted):
            middle = self._noted.index(_END, start)
            end = self._noted.index(_END, middle + 1)
            if str(_stamp(self._noted[start:middle])) != self._noted[middle + 1 : end]:
                return True
            start = end + 1
        return False

    def _become(self, module: str, env: Mapping[str, str]) -> NoReturn:
        code = 1
        try:
            gc.freeze()  # uncollected objects of supervisord would close descriptors that are ours by then
            _close_all_but(self._kept)
            _open_streams()
            _take_the_name(module)
            _take_the_environment(env)
            sys.argv = [module]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            _flush_streams()
            os._exit(code)  # so that supervisord's own frames, which are below ours, do not run


def make(supervisord: Any, modules: str = "", **_: str) -> object:
    """Import the modules, and let supervisord fork processes that have them. supervisord calls this at its start and
    after a reload. `modules`, a key of the section in supervisord.conf: their names, separated by spaces, where not all
    services run. The returned object has no methods."""
    options = supervisord.options
    preloading = Preloading(options.execve, getattr(options, "kept", ()), next(_loads))
    preloading.load(modules.split() or _MODULES)
    options.execve = preloading
    fork = options.fork

    def noted_fork() -> int:
        preloading.before_fork()
        return int(fork())

    options.fork = noted_fork
    restart_promptly(options)
    return object()


def import_modules(modules: Sequence[str] = _MODULES, stop: Callable[[], bool] = lambda: False) -> None:
    """Import the modules one by one until `stop`. The process that needs a module whose import fails imports it again,
    and logs the failure."""
    sys.dont_write_bytecode = False  # as for the services, which would compile the modules at every start
    for module in modules:
        if stop():
            return
        try:
            importlib.import_module(module)
        except Exception:
            continue


def _prepare() -> None:
    """Build what every service would build for itself; where that fails, each service tries it again and logs it."""
    with contextlib.suppress(Exception):
        importlib.import_module("bus.prepared").prepare()
        log = importlib.import_module("shared.log.process_log")
        log.set_levels(log.Verbosity())
        # An abstract class remembers of each type whether it is one of its kind. The first time it asks all classes
        # below it, which costs a fork up to 1 MiB of copied pages. logging asks this about the only argument of a
        # record, asyncio about callbacks and about what it waits for.
        for kind in (str, int, float, importlib.import_module("shared.log.klog").Structured):
            issubclass(kind, Mapping)
        for kind in (functools.partial, list, set, types.MethodType):
            issubclass(kind, Coroutine)


def module_of(file: str, argv: Sequence[str]) -> str | None:
    """Return the module of ours that the command line runs (`<our python> [-P] -m services.x`), None = another
    program."""
    if Path(file).parent.parent != Path(sys.prefix) or "-m" not in argv:
        return None
    place = list(argv).index("-m")
    if any(argument != "-P" for argument in argv[1:place]) or len(argv) != place + 2:
        return None
    return argv[place + 1] if argv[place + 1].startswith(_PACKAGE) else None


def _files() -> set[str]:
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {file for file in files if isinstance(file, str)}


def _stamp(file: str) -> _Stamp | None:
    try:
        status = os.stat(file)  # noqa: PTH116  a Path for each of a thousand files costs the child memory
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _was_touched_since(began: int, file: str) -> bool:
    """Return whether the file changed since `began`, so that the imported module may not be the one in the file now."""
    try:
        return os.stat(file).st_ctime_ns >= began  # noqa: PTH116  as above
    except OSError:
        return False


def _reset_signals() -> None:
    """Reset signal handlers as an exec does, except for the two signals that Python ignores from its start."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _take_the_environment(env: Mapping[str, str]) -> None:
    """Set the environment, writing only variables that differ: most of it is supervisord's own."""
    # Not a difference of two views, for which Python asks the abstract class Set about them, as in `_prepare`.
    for name in set(os.environ).difference(env):
        del os.environ[name]
    for name, value in env.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _close_all_but(kept: frozenset[int]) -> None:
    """Close the descriptors that an exec would close: supervisord has closed only those below its limit."""
    for number in sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir()):
        if number >= _FIRST_FD and number not in kept:
            try:
                os.close(number)
            except OSError:
                continue  # the descriptor of the listing itself


def _open_streams() -> None:
    """Open new standard streams: those of supervisord may have buffered lines, and buffer every line in the
    background."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)  # sys.__stdout__ keeps the old one, whose end would close the descriptor


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # raised where the other end of the pipe is closed
            stream.flush()


def process_name(module: str) -> str:
    """Return the name that `ps -e`, `top` and pgrep show of a process that runs `module`, such as services.server: all
    begin with the same word, and the kernel keeps 15 characters."""
    return f"bulkhead-{module.rpartition('.')[2]}"[:_MAX_NAME_CHARACTERS]


def _take_the_name(module: str) -> None:
    """Set the name of the process; the command line stays that of supervisord."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(process_name(module), encoding="utf-8")
