"""Collects what a failed test shows of the agents it ran: the end of their logs, `bulkhead explain` of their pods, a
copy of their directories."""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from services.cli.agent.explain import explain_pod
from shared.story.files import directory_of

LOG_LINES, PODS, FILE_BYTES = 25, 8, 4 << 20
# Below a home: what the container runtime keeps, and mounted volumes.
_NOT_COPIED = ("containerd", "volumes", "volume-subpaths", "store")

live: set[Path] = set()  # homes of the agents that run or have yet to be taken away


def of_home(home: Path) -> str:
    """Return the end of each log and the stories of the pods that changed last."""
    return "\n".join([tail_of_logs(home / "log"), *stories(home / "kubelet")])


def tail_of_logs(directory: Path, lines: int = LOG_LINES) -> str:
    """Return the end of every log."""
    parts = []
    for path in sorted(directory.glob("*.*")):
        if path.is_file():
            tail = path.read_text(errors="replace").splitlines()[-lines:]
            parts.append("\n".join([f"---- {path.name}", *tail]))
    return "\n".join(parts)


def stories(root_dir: Path, uids: Iterable[str] = ()) -> list[str]:
    """Return what `bulkhead explain` prints for each of these pods, or for those whose stories changed last."""
    directory = directory_of(str(root_dir))
    files = sorted(directory.glob("*"), key=lambda path: path.stat().st_mtime) if directory.is_dir() else []
    lines: list[str] = []
    for uid in tuple(uids) or dict.fromkeys(path.name.partition(".")[0] for path in files[-PODS:]):
        lines.append(f"---- bulkhead explain {uid}")
        explain_pod(str(root_dir), uid, "", "text", lines.append, lines.append)
    return lines


def keep(home: Path, test: str, *logs: Path) -> Path:
    """Copy what the agent wrote, without the runtime's and the volumes' content, and these `logs` of other programs,
    whatever their size; return where the copy is."""
    place = Path(tempfile.gettempdir()) / "bulkhead-failed" / re.sub(r"[^\w.\[\]-]+", "_", test)[-150:] / home.name
    shutil.rmtree(place, ignore_errors=True)
    for directory, names, files in os.walk(home):
        of_docker = Path(directory) == home / "docker"  # of which the log is of use
        names[:] = [name for name in names if name not in _NOT_COPIED and not of_docker]
        for name in files:
            path = Path(directory) / name
            found = path.lstat()
            if stat.S_ISREG(found.st_mode) and found.st_size <= FILE_BYTES:
                copy = place / path.relative_to(home)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
    for log in logs:
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(log, place)
    return place


def show(home: Path, test: str) -> str:
    """Return the end of the logs and the stories, as text. Never raises: it runs while another failure is reported."""
    try:
        return f"{of_home(home)}\n---- files of the agent: {keep(home, test)}"
    except OSError as error:
        return f"no more to see of {home}: {error}"


def of_running_test() -> str:
    """Return the name of the test that runs, as pytest gives it."""
    return os.environ.get("PYTEST_CURRENT_TEST", "no test").partition(" (")[0]
