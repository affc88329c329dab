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

KILL_ROUNDS = 5
REMOVE_TRIES = 10
REMOVE_DELAYS = Backoff(initial=0.001)


def remove(hierarchies: Hierarchies, name: str) -> None:
    """Kill and remove, in every tree; absent is fine. Raises OSError naming the cgroup that stays."""
    paths = [path for path in hierarchies.places(name) if not _removed_at_once(path)]
    kill(paths)
    for path in paths:
        _remove(path)


def kill_in(hierarchies: Hierarchies, name: str) -> None:
    """SIGKILL every process in the cgroup and below it."""
    kill(hierarchies.places(name))


def kill(paths: list[Path]) -> None:
    """SIGKILL every process in these directories and below them, again while new ones turn up, 5 times at most."""
    for _ in range(KILL_ROUNDS):
        found = {pid for path in paths for pid in _processes_below(path)} - {os.getpid()}
        pids = sorted(pid for pid in found if pid > 0)  # 0 = one we cannot see; killed, it would be our own group
        if not pids:
            return
        log.info("killing processes left in cgroup %s: %s", paths[0], pids)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)  # the kernel sends no event when a killed process has left its cgroup


def _removed_at_once(path: Path) -> bool:
    """The usual case: nothing is left in it."""
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
    """rmdir bottom-up; EBUSY is tried again 10 times, from 1 ms doubling, as the kubelet does."""
    for directory in _below(path):
        _rmdir(directory)


def _below(path: Path) -> Iterator[Path]:
    """The cgroups below this one, then itself. One that is gone meanwhile has none below it."""
    for entry in walk_bottom_up(path, skip_unreadable=True):
        if entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)
    yield path


def _rmdir(path: Path) -> None:
    for attempt in range(1, REMOVE_TRIES + 1):
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or attempt == REMOVE_TRIES:
                raise OSError(f"cannot remove cgroup {path}: {error.strerror}") from error
            time.sleep(REMOVE_DELAYS.delay(attempt))
