"""Reads the facts of the machine: processors, memory, its ids, kernel and system. An id that cannot be read is
empty."""

import os
import platform
from pathlib import Path

from bus.messages.cgroup_details import MachineInfo
from shared.host.boot_id import boot_id
from shared.host.machine import meminfo


def read_machine_info(root: Path = Path("/")) -> MachineInfo:
    """Read the machine's files below `root`."""
    cores = os.sysconf("SC_NPROCESSORS_ONLN")
    topology = [
        (_text(cpu / "topology/physical_package_id"), _text(cpu / "topology/core_id"))
        for cpu in (root / "sys/devices/system/cpu").glob("cpu[0-9]*")
    ]
    memory = meminfo(root / "proc")
    release = (line.partition("=") for line in _text(root / "etc/os-release").splitlines())
    return MachineInfo(
        cores=cores,
        physical_cores=len(set(topology)) or cores,
        sockets=len({package for package, _ in topology}) or 1,
        memory=memory.get("MemTotal", 0),
        swap=memory.get("SwapTotal", 0),
        machine_id=_text(root / "etc/machine-id"),
        system_uuid=_text(root / "sys/class/dmi/id/product_uuid"),
        boot_id=boot_id(),
        kernel_version=platform.release(),
        os_version=next((value.strip('"') for key, _, value in release if key == "PRETTY_NAME"), ""),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
