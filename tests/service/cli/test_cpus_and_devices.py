"""`bulkhead cpus` and `bulkhead devices`, asked of running processes and of this machine."""

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.service.cli.stage import Stage


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("agent"), 3)
    yield stage
    stage.stop()


@pytest.mark.long
def test_the_cpus_of_this_machine_are_where_lscpu_has_them_and_with_whom_podsync_says(stage: Stage) -> None:
    found = json.loads(stage.command("cpus", "-o", "json").stdout)
    listed = subprocess.run(["lscpu", "-p=CPU,CORE,SOCKET,NODE"], capture_output=True, text=True, check=True).stdout
    places = [line.split(",") for line in listed.splitlines() if not line.startswith("#")]
    cores: dict[tuple[str, str], list[int]] = defaultdict(list)
    for cpu, core, socket, _ in places:
        cores[socket, core].append(int(cpu))
    online = [row for row in found["cpus"] if row["core"] is not None]
    assert {row["cpu"]: (row["core"], row["numa_node"]) for row in online} == {
        int(cpu): (min(cores[socket, core]), int(node or 0)) for cpu, core, socket, node in places
    }
    web = {"namespace": "shop", "pod": "web-2", "uid": "u2", "container": "web"}
    [given] = [row for row in found["cpus"] if row["cpu"] == 1]
    assert (given["use"], given["containers"]) == ("exclusive", [web])
    assert (found["static"], found["shared_pool"]) == (True, "0")
    assert found["memory"] == [{"nodes": [0], "kind": "memory", "size_bytes": 1 << 30, "container": web}]
    lines = stage.command("cpus").stdout.splitlines()
    assert lines[0] == "shared pool: 0"
    assert lines[-1].split() == ["0", "memory", "1.0", "GiB", "3.0", "GiB", "shop/web-2/web"]


def test_devices_are_those_that_volume_has_with_those_who_have_them_by_podsync(stage: Stage) -> None:
    found = json.loads(stage.command("devices", "-o", "json").stdout)
    web = {"namespace": "shop", "pod": "web-2", "uid": "u2", "container": "web"}
    assert [(row["device"], row["health"], row["containers"]) for row in found["devices"]] == [
        ("gpu-0", "Healthy", []),
        ("gpu-1", "Unhealthy", [web]),
    ]
    lines = stage.command("devices").stdout.splitlines()
    assert lines[1].split()[:5] == ["example.com/gpu", "2", "1", "1", "connected"]
    assert lines[5].split()[-2:] == ["0,1", "shop/web-2/web"]
    assert lines[-1].split() == ["shop/net-claim", "nic.example.com", "here", "nic-0", "Unhealthy", "shop/web-2"]
    assert [(row["uid"], row["device"], row["message"]) for row in found["claims"]] == [("u2", "nic-0", "no link")]
