"""Every number of a cgroup that dashboards use, from the recorded trees of both versions; which cgroups there are."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bus.messages.cgroup_details import CgroupDetails, FoundCgroups
from services.pleg.adapters.block_devices import device_name, device_of
from services.pleg.adapters.cgroup_details_reader import SANDBOX_IMAGE, CgroupDetailsReader
from services.pleg.adapters.cgroup_reader import CgroupPlace, place_of
from services.pleg.adapters.machine_info import read_machine_info
from services.pleg.core.cgroup_details import DeviceNumbers, v1_details, v1_io, v2_details, v2_io
from shared.host.cgroup_layout import Hierarchies
from shared.model.frozen_copy import replace
from shared.model.runtime import Container, ContainerState, RuntimePod, Sandbox, SandboxState
from tests.fakes.memory_bus import ManualClock
from tests.unit.pleg.cgroup_trees import CONTAINER, UID, V1_POD, V2_CONTAINER, V2_POD, lay_out_v1, lay_out_v2

MIB = 2**20
SANDBOX_PID, CONTAINER_PID = 2**30, 2**30 + 1
POD = RuntimePod(
    uid=UID,
    name="web",
    namespace="default",
    observed_at=0.0,
    sandboxes=(Sandbox(id="s", attempt=0, state=SandboxState.READY, created_at=1, pid=SANDBOX_PID),),
    containers=(
        Container(
            id=CONTAINER,
            name="main",
            attempt=0,
            sandbox_id="s",
            state=ContainerState.RUNNING,
            created_at=2_000_000_000,
            image="busybox:1",
            pid=CONTAINER_PID,
        ),
    ),
)


def read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lay_out: Callable[[Path], Hierarchies], path: str
) -> FoundCgroups:
    """The container is in the cgroup at `path`; its sandbox has ended."""
    hierarchies = lay_out(tmp_path)

    def place_of_process(_: Hierarchies, pid: int) -> CgroupPlace | None:
        return place_of(hierarchies, path) if pid == CONTAINER_PID else None

    monkeypatch.setattr("services.pleg.adapters.cgroup_reader.place_of_process", place_of_process)
    return CgroupDetailsReader(hierarchies, ManualClock(), ("kubepods",)).read([POD])


def row(found: FoundCgroups, path: str) -> CgroupDetails:
    return next(cgroup for cgroup in found.cgroups if cgroup.id == path)


@pytest.mark.parametrize(
    ("lay_out", "container", "pod"),
    [(lay_out_v1, f"{V1_POD}/{CONTAINER}", V1_POD), (lay_out_v2, V2_CONTAINER, V2_POD)],
    ids=["v1", "v2"],
)
def test_a_container_and_its_pod_have_their_numbers_and_labels(
    lay_out: Callable[[Path], Hierarchies],
    container: str,
    pod: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = read(monkeypatch, tmp_path, lay_out, f"{container}/init")  # in which the container has its processes
    main, own = row(found, f"/{container}"), row(found, f"/{pod}")
    assert (main.name, main.image, main.container, main.created_at) == (CONTAINER, "busybox:1", "main", 2.0)
    assert (own.name, own.image, own.container, own.pod, own.namespace) == ("", "", "", "web", "default")
    assert main.cpu_user_nanoseconds == 10_000_000_000 and main.cpu_system_nanoseconds == 2_500_000_000
    assert (main.cpu_periods, main.cpu_throttled_periods, main.cpu_throttled_nanoseconds) == (10, 4, 3_000_000)
    assert (own.cpu_quota, own.cpu_period) == (20_000, 100_000)
    assert (own.memory_limit, own.memory_max_usage, own.memory_fail_count) == (256 * MIB, 100 * MIB, 7)
    assert (main.memory_limit, main.memory_reservation, main.oom_kills, main.threads) == (None, None, 1, 5)
    assert (main.memory_mapped_file, main.memory_inactive_file, main.memory_active_file) == (1000000, 4 * MIB, 2 * MIB)
    (io,) = main.io
    assert (io.read_bytes, io.written_bytes, io.reads, io.writes) == (8192, 4096, 2, 1)
    assert own.created_at > 0


def test_a_sandbox_has_its_id_and_the_root_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hierarchies = lay_out_v2(tmp_path)
    (tmp_path / "cpu.stat").write_text("usage_usec 1\n")
    place = place_of(hierarchies, V2_CONTAINER)
    monkeypatch.setattr("services.pleg.adapters.cgroup_reader.place_of_process", lambda *_: place)
    sandbox = replace(POD.sandboxes[0], id=CONTAINER, pid=os.getpid())
    reader = CgroupDetailsReader(hierarchies, ManualClock(), ("kubepods",))
    found = reader.read([replace(POD, sandboxes=(sandbox,), containers=())])
    shown = next(cgroup for cgroup in found.cgroups if cgroup.name == CONTAINER)
    assert (shown.image, shown.container, shown.pod) == (SANDBOX_IMAGE, "", "web")
    assert shown.network is not None and (shown.open_files_limit or 0) > 0
    assert row(found, "/").network is not None


def test_files_that_are_not_there_or_garbled_have_no_numbers() -> None:
    assert set(v1_details({}, {}).values()) == {None}
    assert set(v2_details(lambda _: None, {}).values()) == {None}
    assert set(v2_details(lambda _: b"\xff x\n", {}).values()) == {None}
    assert v1_io(b"8:0 Read\n8 Read 1\nx:y Write 2\n", None) == ()
    assert v2_io(b"\n8:0\n253:0 rbytes=x rios=3\n") == (DeviceNumbers(253, 0, reads=3),)


@pytest.mark.parametrize(("weight", "shares"), [(1, 2), (10000, 262144), (100, 2597)])
def test_shares_are_computed_from_a_weight(weight: int, shares: int) -> None:
    def read(name: str) -> bytes | None:
        return str(weight).encode() if name == "cpu.weight" else None

    assert v2_details(read, {})["cpu_shares"] == shares


def test_a_device_without_a_name_is_shown_by_its_numbers(tmp_path: Path) -> None:
    assert device_name(999, 999) == "999:999"
    assert device_of(str(tmp_path)) != "" and device_of(str(tmp_path / "none")) == ""


def test_a_machine_of_which_nothing_can_be_read_still_has_processors(tmp_path: Path) -> None:
    machine = read_machine_info(tmp_path)
    assert machine.cores >= 1 and machine.physical_cores == machine.cores and machine.sockets == 1
    assert (machine.memory, machine.machine_id, machine.os_version) == (0, "", "")


def test_the_machine_is_described_by_its_files(tmp_path: Path) -> None:
    for number, (package, core) in enumerate([(0, 0), (0, 0), (0, 1), (1, 0)]):
        topology = tmp_path / f"sys/devices/system/cpu/cpu{number}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{package}\n")
        (topology / "core_id").write_text(f"{core}\n")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("5e1f\n")
    (tmp_path / "etc/os-release").write_text('ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')
    machine = read_machine_info(tmp_path)
    assert (machine.physical_cores, machine.sockets) == (3, 2)
    assert (machine.machine_id, machine.os_version) == ("5e1f", "Debian GNU/Linux 12 (bookworm)")
