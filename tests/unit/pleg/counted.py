"""Counts directories and pods to their end, for tests that compare the sums."""

from math import inf
from pathlib import Path

from services.pleg.adapters.disk_usage import MAX_LINKED_FILES, DirectoryCount, PodCount
from services.pleg.core.pod_files import DiskUse, PodFiles


def disk_usage(root: Path, most_linked: int = MAX_LINKED_FILES) -> DiskUse:
    directory = DirectoryCount(root, most_linked)
    while not directory.count(100):
        pass
    return directory.use()


def measure_pod(root_dir: Path, logs: Path, uid: str, *, volumes: bool = True) -> PodFiles:
    pod = PodCount(str(root_dir), logs, uid, 3.0, volumes=volumes)
    assert pod.count(inf, lambda: 0.0)
    return pod.found()
