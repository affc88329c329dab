"""The usage of pods and their containers, and of the node, from a recorded machine; rates between two readings."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bus.messages.usage import CgroupUsage, NodeUsage
from services.pleg.adapters import filesystem_reader
from services.pleg.adapters.cgroup_reader import place_of
from services.pleg.adapters.filesystem_reader import FilesystemReader, read_filesystem
from services.pleg.adapters.usage_reading import UsageReading, parent_of_pod
from services.pleg.core.cpu_rates import CpuRates
from services.pleg.core.pod_usage import running_containers, sum_of
from shared.host.cgroup_layout import Hierarchies
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, RuntimePod
from tests.fakes.memory_bus import ManualClock
from tests.unit.pleg.cgroup_trees import CONTAINER, UID, V1_POD, V2_CONTAINER, V2_POD, lay_out_v1, lay_out_v2


def container(number: int, name: str = "web", state: ContainerState = ContainerState.RUNNING) -> Container:
    return Container(id=f"c{number}", name=name, attempt=number, sandbox_id="s", state=state, created_at=number, pid=0)


def pod(*containers: Container) -> RuntimePod:
    return RuntimePod(uid=UID, name="web", namespace="default", observed_at=0.0, containers=containers)


def test_of_a_name_the_newest_running_container_counts() -> None:
    exited = container(3, "job", ContainerState.EXITED)
    assert running_containers(pod(exited, container(2), container(1))) == (container(2),)


@pytest.mark.parametrize(
    ("lay_out", "path", "own"),
    [
        (lay_out_v1, f"{V1_POD}/{CONTAINER}", V1_POD),
        (lay_out_v2, V2_CONTAINER, V2_POD),
        (lay_out_v2, f"{V2_CONTAINER}/container", V2_POD),  # of crun
        (lay_out_v2, f"{V2_CONTAINER}/pod{UID}/inner", V2_POD),  # of the container's own making
    ],
)
def test_the_cgroup_of_a_pod_is_the_outermost_of_its_uid_above_its_processes(
    lay_out: Callable[[Path], Hierarchies], path: str, own: str, tmp_path: Path
) -> None:
    hierarchies = lay_out(tmp_path)
    assert parent_of_pod(place_of(hierarchies, path), UID) == replace(place_of(hierarchies, own), is_root=False)
    assert parent_of_pod(place_of(hierarchies, path), UID.replace("0d8f", "ffff")) is None


def test_without_a_cgroup_of_its_own_a_pod_uses_what_its_containers_use() -> None:
    one = CgroupUsage(time=1.0, cpu_nanoseconds=5, memory_usage=7)
    other = CgroupUsage(time=2.0, cpu_nanoseconds=6, processes=2)
    assert sum_of((one, other)) == CgroupUsage(time=2.0, cpu_nanoseconds=11, memory_usage=7, processes=2)
    assert sum_of(()) is None


def test_a_pod_whose_processes_have_ended_has_containers_without_numbers(tmp_path: Path) -> None:
    reading = UsageReading(lay_out_v1(tmp_path), ManualClock(), ("kubepods",))
    (usage,) = reading.read_pods([pod(replace(container(1), pid=2**30)), pod(container(2, "x", ContainerState.EXITED))])
    assert (usage.cgroup, usage.processes, usage.containers[0].cgroup) == (None, None, None)


def test_a_container_is_read_at_its_own_cgroup_and_its_processes_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hierarchies, inner = lay_out_v2(tmp_path), [f"{V2_CONTAINER}/container"]
    own = tmp_path / V2_CONTAINER
    monkeypatch.setattr(
        "services.pleg.adapters.cgroup_reader.place_of_process", lambda *_: place_of(hierarchies, inner[0])
    )
    reading = UsageReading(hierarchies, ManualClock(), ("kubepods",))
    runs = pod(replace(container(1), id=CONTAINER, pid=os.getpid()))
    (own / "cgroup.procs").write_text("")

    def read_container() -> tuple[int | None, int | None]:
        (usage,) = reading.read_pods([runs])
        cgroup = usage.containers[0].cgroup
        assert cgroup is not None
        return cgroup.cpu_nanoseconds, cgroup.processes

    (own / "container").mkdir()
    (own / "container/cgroup.procs").write_text("1\n2\n")
    assert read_container() == (12_500_000_000, 2)
    inner[0] = f"{V2_CONTAINER}/init.scope"  # the processes move, as those of systemd in a container do
    (own / "container/cgroup.procs").write_text("")
    (own / "init.scope").mkdir()
    (own / "init.scope/cgroup.procs").write_text("1\n")
    assert read_container() == (12_500_000_000, 0)
    assert read_container() == (12_500_000_000, 1)


def test_a_node_without_any_readable_cgroup_still_has_its_tasks() -> None:
    nowhere = Hierarchies(unified=None, by_controller={})
    node = UsageReading(nowhere, ManualClock(), ("kubepods",)).read_node()
    assert node.cgroup.cpu_nanoseconds is None and node.system_containers == ()
    assert (node.pids_current or 0) > 0 and (node.memory_capacity or 0) > 0


def test_kubepods_is_a_system_container(tmp_path: Path) -> None:
    hierarchies = lay_out_v1(tmp_path)
    for tree in hierarchies.by_controller.values():
        for file in (tree / V1_POD).iterdir():
            if file.is_file():
                (tree / "kubepods" / file.name).write_text(file.read_text())
    node = UsageReading(hierarchies, ManualClock(), ("kubepods",)).read_node()
    assert [(system.name, system.cgroup.processes) for system in node.system_containers] == [("pods", 3)]


def test_the_cgroup_of_the_agent_is_a_system_container_unless_it_is_a_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hierarchies = lay_out_v1(tmp_path)
    own = [place_of(hierarchies, V1_POD)]
    monkeypatch.setattr("services.pleg.adapters.usage_reading.place_of_process", lambda *_: own[0])
    reading = UsageReading(hierarchies, ManualClock(), ("kubepods",))
    assert [system.name for system in reading.read_node().system_containers] == ["kubelet"]
    own[0] = replace(own[0], by_controller={**own[0].by_controller, "cpuacct": f"{tmp_path}/cpuacct"})
    assert reading.read_node().system_containers == ()


def test_the_cgroups_of_daemons_are_system_containers_where_they_exist(tmp_path: Path) -> None:
    hierarchies = lay_out_v1(tmp_path)
    daemons = {"kubelet": f"/{V1_POD}", "runtime": f"/{V1_POD}/{CONTAINER}", "misc": "/not-there"}
    node = UsageReading(hierarchies, ManualClock(), ("kubepods",), daemons).read_node()
    assert [(system.name, system.cgroup.processes) for system in node.system_containers] == [
        ("kubelet", 3),
        ("runtime", 3),
    ]


async def test_a_filesystem_that_hangs_costs_its_own_figures_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, calls = threading.Event(), []

    def statvfs(path: str) -> os.statvfs_result:
        calls.append(path)
        if path == "/hangs":
            answers.wait(60)
        return real(path if path != "/hangs" else "/")

    real = os.statvfs
    monkeypatch.setattr(os, "statvfs", statvfs)
    monkeypatch.setattr(filesystem_reader, "MAX_READ_SECONDS", 0.05)
    reader = FilesystemReader()
    assert await reader.read("/hangs", 1.0) is None
    async with asyncio.timeout(60):
        while not calls:  # its thread may begin after that
            await asyncio.sleep(0)
    assert await reader.read("/hangs", 1.0) is None
    assert calls == ["/hangs"]
    monkeypatch.setattr(filesystem_reader, "MAX_READ_SECONDS", 60.0)
    found = await reader.read(str(tmp_path), 1.0)
    assert found is not None and found.device and (found.usage.capacity or 0) > 0
    answers.set()
    async with asyncio.timeout(60):
        while await reader.read("/hangs", 1.0) is None:
            await asyncio.sleep(0.01)
    reader.close()


def test_a_filesystem_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert read_filesystem(str(tmp_path / "none"), 1.0) is None


def node_at(seconds: float, cpu_nanoseconds: int) -> NodeUsage:
    cgroup = CgroupUsage(time=seconds, cpu_nanoseconds=cpu_nanoseconds)
    return NodeUsage(read_at=seconds, started_at=0.0, cgroup=cgroup)


def test_a_rate_is_over_at_least_five_seconds_and_starts_again_with_a_new_cgroup() -> None:
    rates = CpuRates()
    readings = [(0.0, 100), (1.0, 200), (10.0, 1100), (11.0, 1200), (20.0, 100), (30.0, 200)]
    found = [rates.add_to_node(node_at(seconds, cpu)).cgroup.cpu_nanocores for seconds, cpu in readings]
    assert found == [None, None, 100, 100, None, 10]
