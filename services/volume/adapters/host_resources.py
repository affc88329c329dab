"""Reads the host's resources, which stand for the allocatable ones until podsync publishes them, and its SELinux
label."""

import os

from shared.host.machine import meminfo
from shared.host.selinux import container_file_label, selinux_enabled


def read() -> dict[str, str]:
    """Return cpu and memory of the host: resource -> quantity text."""
    return {"cpu": str(os.cpu_count() or 1), "memory": str(meminfo().get("MemTotal", 0))}


def file_label() -> str:
    """Return the default SELinux label of files that containers use; "" = SELinux is off, or its policy has none."""
    return container_file_label() if selinux_enabled() else ""
