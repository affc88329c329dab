"""Counts directories and pods to their end, for tests that compare the sums; and a directory that grows."""

import os
from math import inf
from pathlib import Path

from services.pleg.adapters.disk_usage import MAX_LINKED_FILES, DirectoryCount, PodCount
from services.pleg.adapters.file_statuses import Places
from services.pleg.core.pod_files import DiskUse, PodFiles


def disk_usage(root: Path, most_linked: int = MAX_LINKED_FILES) -> DiskUse:
    directory = DirectoryCount(root, Places(most_linked), Places(0))
    while not directory.count(100):
        pass
    return directory.use()


def measure_pod(root_dir: Path, logs: Path, uid: str, *, volumes: bool = True) -> PodFiles:
    pod = PodCount(str(root_dir), logs, uid, 3.0, volumes=volumes)
    assert pod.count(inf, lambda: 0.0)
    return pod.sum_up()


class Chain:
    """A directory with one in it, with one in it …; it is extended at its end."""

    def __init__(self, root: Path) -> None:
        self._end = os.open(root, os.O_RDONLY)

    def extend(self, levels: int) -> None:
        for _ in range(levels):
            os.mkdir("d", dir_fd=self._end)
            inner = os.open("d", os.O_RDONLY, dir_fd=self._end)
            os.close(self._end)
            self._end = inner

    def close(self) -> None:
        os.close(self._end)
