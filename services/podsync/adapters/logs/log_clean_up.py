"""Removes log directories of pods that are gone, and links to logs that are gone (pods.md 11.4).
The deletion of a pod removes the pod's own directory; this module finds what a kill or an earlier agent left.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path

from services.podsync.core.log_rotation import ASIDE, removable_directories, removable_links
from shared.files.tree_removal import remove_tree
from shared.process.crash import crash_point

log = logging.getLogger(__name__)


class LogCleanUp:
    """Removes log directories and links that no pod has any more. `known` returns the UIDs of pods whose logs stay,
    None = not all of them are known; `existing` returns the ids of the containers that have not exited, likewise."""

    def __init__(
        self,
        pod_logs_dir: Path,
        known: Callable[[], Collection[str] | None],
        existing: Callable[[], Collection[str] | None],
    ) -> None:
        self._logs, self._links = pod_logs_dir, pod_logs_dir.parent / "containers"
        self._known, self._existing = known, existing

    async def sweep(self) -> None:
        """Look at both directories once, and remove what is left over."""
        try:
            names = await asyncio.to_thread(_names, self._logs)
            asides = self._take_aside(names)
            for aside in asides:
                await asyncio.to_thread(_remove, aside)
            dangling = await asyncio.to_thread(_dangling, self._links)
            existing = self._existing()
            for name in removable_links(dangling, existing) if existing is not None else ():
                (self._links / name).unlink(missing_ok=True)
        except OSError as error:
            log.warning("the container logs below %s cannot be cleared: %s", self._logs, error)

    def _take_aside(self, names: list[str]) -> list[Path]:
        """Rename the directories of pods that are gone. There is no await between decision and rename: a pod of the
        same UID that comes later makes a new directory."""
        known = self._known()
        if known is None:
            return []
        asides = []
        for name in removable_directories(names, known):
            directory = self._logs / name
            if directory.is_symlink() or not directory.is_dir():
                continue
            if not name.startswith(ASIDE):
                log.info("removing the logs of a pod that is gone: %s", directory)
                try:
                    directory = directory.rename(self._logs / f"{ASIDE}{name}")
                except OSError as error:  # such as one of that name that is still there
                    log.warning("the logs %s stay for now: %s", directory, error.strerror)
                    continue
                crash_point("podsync.logs.aside")
            asides.append(directory)
        return asides


def _remove(aside: Path) -> None:
    """Remove a renamed directory; the next sweep tries again what cannot be removed now."""
    try:
        remove_tree(aside)
    except OSError as error:
        log.warning("the logs %s stay for now: %s", aside, error)


def _names(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries]
    except FileNotFoundError:
        return []


def _dangling(directory: Path) -> list[str]:
    """Return the names of the links without a target."""
    links = [directory / name for name in _names(directory)]
    return [link.name for link in links if link.is_symlink() and not link.exists()]
