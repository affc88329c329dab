"""Makes, changes and removes cgroups: by their files alone, or as slices of systemd and then by their files.
Decides neither names nor values. A kill may leave a new cgroup without its values; the next call that ensures it
writes them, as long as nothing is in the cgroup.
"""

import asyncio
from collections.abc import Iterable
from typing import ClassVar

from msgspec import Struct

from services.podsync.adapters.cgroups import cgroup_files, cgroup_removal
from services.podsync.adapters.cgroups.systemd_units import SystemdUnits
from services.podsync.core.cgroups.pod_cgroup import CgroupValues
from services.podsync.core.cgroups.systemd_properties import limit_properties, slice_properties, unit_of
from shared.host import cgroup_layout
from shared.host.cgroup_layout import Hierarchies
from shared.host.cgroup_name import CGROUPFS, SYSTEMD


class CgroupfsDriver(Struct, frozen=True):
    """Makes, changes and removes cgroups by their files. Every method raises OSError with one line that names what was
    refused."""

    hierarchies: Hierarchies
    page_sizes: tuple[str, ...]
    name: ClassVar[str] = CGROUPFS

    async def ensure(self, name: str, values: CgroupValues) -> None:
        """Make the cgroup with these values where it does not exist; a cgroup in use keeps the values it has."""
        if await asyncio.to_thread(must_be_written, self.hierarchies, name):
            await self.write(name, values)

    async def write(self, name: str, values: CgroupValues) -> None:
        """Write these values to the cgroup, which is made where it does not exist."""
        await asyncio.to_thread(self._write_files, name, values)

    async def destroy(self, name: str) -> None:
        """Kill what is left in the cgroup and remove it with everything below it; that it is absent is no error."""
        await asyncio.to_thread(cgroup_removal.remove, self.hierarchies, name)

    def _write_files(self, name: str, values: CgroupValues) -> None:
        if not cgroup_layout.exists(self.hierarchies, name):
            cgroup_files.make(self.hierarchies, name)
        cgroup_files.write(self.hierarchies, name, values, self.page_sizes)


class SystemdDriver(CgroupfsDriver, frozen=True):
    """Makes slices of systemd, then writes their files: systemd rounds values, and knows only some controllers."""

    units: "SystemdUnits"
    name: ClassVar[str] = SYSTEMD

    async def write(self, name: str, values: CgroupValues) -> None:
        """Start the slice with these values; a slice that systemd has already, with or without cgroup, is updated."""
        await self.units.connect()
        v2 = self.hierarchies.unified is not None
        limits = limit_properties(values, v2=v2, version=self.units.version)
        exists = await asyncio.to_thread(cgroup_layout.exists, self.hierarchies, name)
        new = not exists and await self.units.start(unit_of(name), [*slice_properties(name, v2=v2), *limits])
        if not new:
            await self.units.set_properties(unit_of(name), limits)
        await asyncio.to_thread(cgroup_files.make, self.hierarchies, name)
        await super().write(name, values)

    async def destroy(self, name: str) -> None:
        """Kill what is in the cgroup, then stop the slice: systemd alone would wait a minute and more for processes."""
        await asyncio.to_thread(cgroup_removal.kill_in, self.hierarchies, name)
        await self.units.stop(unit_of(name))
        await super().destroy(name)


def must_be_written(hierarchies: Hierarchies, name: str) -> bool:
    """Return whether the cgroup is missing, or contains no process and no cgroup yet."""
    return not cgroup_layout.exists(hierarchies, name) or not cgroup_layout.is_in_use(hierarchies, name)


def make_driver(name: str, hierarchies: Hierarchies, page_sizes: Iterable[str]) -> CgroupfsDriver:
    """Make the driver `cgroupfs` or `systemd`, in the event loop."""
    if name != SYSTEMD:
        return CgroupfsDriver(hierarchies, tuple(page_sizes))
    return SystemdDriver(hierarchies, tuple(page_sizes), SystemdUnits())
