"""Which containerd and which program for containers the root tests of this run use, and their versions.

Variables of the environment choose. TEST_CONTAINERD is a suite of Debian; without it the newest that the cache has,
else the installed one. TEST_HANDLER is runc (without it) or crun. TEST_RUNTIME is containerd (without it) or docker.
TEST_CGROUP_DRIVER is cgroupfs (without it) or systemd, of the agents whose test does not set one.
"""

import os
import subprocess
from functools import cache

from shared.config.effective import HANDLERS
from tests.support.installed.debian_containerd import INSTALLED, NEWEST, SUITES, fetch_programs, find_programs

KEPT_BY = {"runc": "state.json", "crun": "status"}  # the file that each keeps of a container, in a directory of its id


@cache
def chosen_suite() -> str:
    """The suite of Debian whose containerd runs the pods."""
    chosen = os.environ.get("TEST_CONTAINERD")
    if chosen is None:
        return NEWEST if find_programs(NEWEST) else INSTALLED
    assert chosen in SUITES, f"TEST_CONTAINERD={chosen}: must be one of {', '.join(SUITES)}"
    return chosen


@cache
def chosen_handler() -> str:
    """The name of the program that runs the containers."""
    chosen = os.environ.get("TEST_HANDLER", HANDLERS[0])
    assert chosen in HANDLERS, f"TEST_HANDLER={chosen}: must be one of {', '.join(HANDLERS)}"
    return chosen


@cache
def runs_in_docker() -> bool:
    """Whether the pods of the tests' agents run in Docker, behind the shim."""
    chosen = os.environ.get("TEST_RUNTIME", "containerd")
    assert chosen in ("containerd", "docker"), f"TEST_RUNTIME={chosen}: must be containerd or docker"
    return chosen == "docker"


@cache
def chosen_cgroup_driver() -> str:
    """Return the cgroup driver of the agents whose test does not set one."""
    chosen = os.environ.get("TEST_CGROUP_DRIVER", "cgroupfs")
    assert chosen in ("cgroupfs", "systemd"), f"TEST_CGROUP_DRIVER={chosen}: must be cgroupfs or systemd"
    return chosen


@cache
def put_containerd_on_path() -> None:
    """Let this process and its children find the chosen containerd, its shim and ctr first. Raises OSError."""
    if chosen_suite() != INSTALLED:
        os.environ["PATH"] = f"{fetch_programs(chosen_suite())}:{os.environ['PATH']}"


def scope_of(container_id: str) -> str:
    """Return the path, below its pod's cgroup, of the cgroup with the limits of a container, with the driver systemd on
    cgroup v2. The program named runc may be a link to crun."""
    below = "/container" if first_line(chosen_handler(), "--version").startswith("crun") else ""
    return f"cri-containerd-{container_id}.scope{below}"


@cache
def first_line(program: str, *arguments: str) -> str:
    """The first line that the program prints, "" where there is none."""
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return (done.stdout.splitlines() or [""])[0]
