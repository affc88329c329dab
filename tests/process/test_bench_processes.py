"""The benchmark finds real processes of an agent by session and descent, and reads the usage of pods that it makes."""

import os
import subprocess
import sys
import time

import pytest

from bench.processes import AgentProcesses
from bench.scenarios.stats import crowd, readings
from shared.host.cgroup_layout import find_hierarchies
from tests.process.supervised import eventually
from tests.support.waits.deadline import WAIT_SECONDS


def test_a_real_tree_is_found_measured_and_killed() -> None:
    child = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).wait()"
    root = subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
    try:
        processes = AgentProcesses(root.pid)
        deadline = time.monotonic() + WAIT_SECONDS
        while len(processes.all()) < 2:
            assert time.monotonic() < deadline
        assert sum(processes.memory().values()) > 1
        assert os.getpid() not in processes.all()
    finally:
        processes.kill()
        root.wait()
    eventually(lambda: not [one for one in processes.all().values() if one.state != "Z"], "all of them end")


def test_processes_by_label_are_the_root_and_its_children_and_none_deeper() -> None:
    command = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', {0!r}, 'services.{1}']).wait()"
    deeper = command.format("import time; time.sleep(600)", "deeper")
    root = subprocess.Popen([sys.executable, "-c", command.format(deeper, "child")], start_new_session=True)
    processes = AgentProcesses(root.pid)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while "deeper" not in processes.memory():
            assert time.monotonic() < deadline
        assert set(processes.pids()) - {"child"} == {"python"}
        assert processes.pids()["python"] == root.pid
    finally:
        processes.kill()
        root.wait()


@pytest.mark.root
def test_the_usage_of_pods_is_read_from_cgroups_that_are_removed_afterwards() -> None:
    with crowd(3) as pods:
        assert [took >= 0 for took in readings(pods, 2)] == [True, True]
    assert not any(place.exists() for place in find_hierarchies().places(f"/bulkhead-bench-{os.getpid()}"))
