"""What tests want of a node that Docker cannot do: rows of the table in docs/docker.md, each by its first cell.

A test with the mark `beyond_docker(Limit.…)` is skipped where the pods run in Docker, with the row as the reason.
`where`: whether it is so on this machine, True without it.
"""

from enum import StrEnum
from pathlib import Path

import pytest

from tests.support.installed.chosen_programs import runs_in_docker


class Limit(StrEnum):
    """The rows that tests meet."""

    PRIVILEGED = "privileged containers where dockerd lacks a capability (in a container), with Docker before 23"
    WEBSOCKET = "streams over the WebSocket protocols before v5"


def lacks_capabilities() -> bool:
    """Return whether what is started here has not all capabilities that the kernel knows."""
    status = Path("/proc/self/status").read_text()
    bounding = int(next(line for line in status.splitlines() if line.startswith("CapBnd:")).split()[1], 16)
    return bounding != (2 << int(Path("/proc/sys/kernel/cap_last_cap").read_text())) - 1


def skip_beyond_docker(item: pytest.Item) -> None:
    """Skip the test where it has the mark and its pods run in Docker."""
    for mark in item.iter_markers("beyond_docker") if runs_in_docker() else ():
        if mark.kwargs.get("where", True):
            pytest.skip(f"docs/docker.md: Docker cannot do this: {mark.args[0]}")
