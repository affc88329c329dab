"""Kills what is left in a cgroup and removes it with everything below it (node.md 4.3, 4.9).

Blocks, in the worst case for seconds: call it in a thread.
"""

import errno
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from shared.files.tree_walk import walk_bottom_up
from shared.host.cgroup_layout import Hierarchies, processes_in
from shared.time.backoff import Backoff

log = logging.getLogger(__name__)

MAX_KILL_ROUNDS = 5
MAX_REMOVE_TRIES = 10
REMOVE_DELAYS = Backoff(initial=0.001)


def remove(hierarchies: Hierarchies, name: str) -> None:
    """Kill what is in the cgroup and remove it in every tree; that it is absent is no error. Raises OSError that names
    a cgroup that stays."""
    paths = [path for path in hierarchies.places(name) if not _remove_empty(path)]
    kill(paths)
    for path in paths:
        _remove(path)


def kill_in(hierarchies: Hierarchies, name: str) -> None:
    """Send SIGKILL to every process in the cgroup and below it."""
    kill(hierarchies.places(name))


def kill(paths: list[Path]) -> None:
    """Send SIGKILL to every process in these directories and below them, again while new ones appear, 5 times at
    most."""
    for _ in range(MAX_KILL_ROUNDS):
        processes = {pid for path in paths for pid in _processes_below(path)} - {os.getpid()}
        # 0 stands for a process outside our PID namespace; kill(0) would kill our own process group.
        pids = sorted(pid for pid in processes if pid > 0)
        if not pids:
            return
        log.info("killing processes left in cgroup %s: %s", paths[0], pids)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)  # the kernel sends no event when a killed process has left its cgroup


def _remove_empty(path: Path) -> bool:
    """Remove a cgroup that has nothing left in it, the usual case; return whether it is gone."""
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _processes_below(path: Path) -> list[int]:
    return [pid for directory in _below(path) for pid in processes_in(directory)]


def _remove(path: Path) -> None:
    """Remove the cgroups bottom-up; EBUSY is tried again 10 times, after 1 ms and twice as long each time, as the
    kubelet does."""
    for directory in _below(path):
        _rmdir(directory)


def _below(path: Path) -> Iterator[Path]:
    """Yield the cgroups below this one, then itself. A cgroup that is gone meanwhile has none below it."""
    for entry in walk_bottom_up(path, skip_unreadable=True):
        if entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)
    yield path


def _rmdir(path: Path) -> None:
    for attempt in range(1, MAX_REMOVE_TRIES + 1):
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or attempt == MAX_REMOVE_TRIES:
                raise OSError(f"cannot remove cgroup {path}: {error.strerror}") from error
            time.sleep(REMOVE_DELAYS.delay(attempt))
