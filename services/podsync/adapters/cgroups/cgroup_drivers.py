"""The two ways to make, change and remove a cgroup: by its files alone, or as a slice of systemd and then by its files.

Decides neither names nor values. A new cgroup that was left without its values by a kill gets them from the next call
that ensures it, as long as nothing is in it.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from services.podsync.adapters.cgroups import cgroup_files, cgroup_removal
from services.podsync.adapters.cgroups.systemd_units import SystemdUnits
from services.podsync.core.cgroups.pod_cgroup import CgroupValues
from services.podsync.core.cgroups.systemd_properties import limit_properties, slice_properties, unit_of
from shared.host import cgroup_layout
from shared.host.cgroup_layout import Hierarchies
from shared.host.cgroup_name import CGROUPFS, SYSTEMD


class Driver(Protocol):
    """Writes cgroups. Every method raises OSError with one line that names what was refused."""

    @property
    def name(self) -> str:
        """`cgroupfs` or `systemd`."""
        ...

    async def ensure(self, name: str, values: CgroupValues) -> None:
        """Make the cgroup with its values where it does not exist; one that is in use keeps the values it has."""
        ...

    async def write(self, name: str, values: CgroupValues) -> None:
        """Give the cgroup these values; it is made where it does not exist."""
        ...

    async def destroy(self, name: str) -> None:
        """Kill what is left in it and remove it with everything below it; absent is fine."""
        ...


@dataclass(frozen=True)
class CgroupfsDriver:
    """By files alone."""

    hierarchies: Hierarchies
    page_sizes: tuple[str, ...]
    name: str = CGROUPFS

    async def ensure(self, name: str, values: CgroupValues) -> None:
        """In one thread."""
        await asyncio.to_thread(self._ensure, name, values)

    async def write(self, name: str, values: CgroupValues) -> None:
        """In one thread."""
        await asyncio.to_thread(self._write, name, values)

    async def destroy(self, name: str) -> None:
        """In one thread."""
        await asyncio.to_thread(cgroup_removal.remove, self.hierarchies, name)

    def _ensure(self, name: str, values: CgroupValues) -> None:
        if must_be_written(self.hierarchies, name):
            self._write(name, values)

    def _write(self, name: str, values: CgroupValues) -> None:
        if not cgroup_layout.exists(self.hierarchies, name):
            cgroup_files.make(self.hierarchies, name)
        cgroup_files.write(self.hierarchies, name, values, self.page_sizes)


@dataclass(frozen=True)
class SystemdDriver:
    """As a slice, then by its files: systemd makes it in the controllers that it knows only, and rounds."""

    hierarchies: Hierarchies
    page_sizes: tuple[str, ...]
    units: "SystemdUnits"
    name: str = SYSTEMD

    async def ensure(self, name: str, values: CgroupValues) -> None:
        """See Driver."""
        if await asyncio.to_thread(must_be_written, self.hierarchies, name):
            await self.write(name, values)

    async def write(self, name: str, values: CgroupValues) -> None:
        """A slice that systemd has already, with or without the cgroup, gets the values as an update."""
        await self.units.connect()
        v2 = self.hierarchies.unified is not None
        limits = limit_properties(values, v2=v2, version=self.units.version)
        exists = await asyncio.to_thread(cgroup_layout.exists, self.hierarchies, name)
        new = not exists and await self.units.start(unit_of(name), [*slice_properties(name, v2=v2), *limits])
        if not new:
            await self.units.set_properties(unit_of(name), limits)
        await asyncio.to_thread(self._write_files, name, values)

    async def destroy(self, name: str) -> None:
        """systemd would give what runs in it a minute and more to end: it is killed first."""
        await asyncio.to_thread(cgroup_removal.kill_in, self.hierarchies, name)
        await self.units.stop(unit_of(name))
        await asyncio.to_thread(cgroup_removal.remove, self.hierarchies, name)

    def _write_files(self, name: str, values: CgroupValues) -> None:
        cgroup_files.make(self.hierarchies, name)
        cgroup_files.write(self.hierarchies, name, values, self.page_sizes)


def must_be_written(hierarchies: Hierarchies, name: str) -> bool:
    """Whether the cgroup is missing, or contains no process and no cgroup yet."""
    return not cgroup_layout.exists(hierarchies, name) or not cgroup_layout.is_in_use(hierarchies, name)


def driver_called(name: str, hierarchies: Hierarchies, page_sizes: Iterable[str]) -> Driver:
    """The driver `cgroupfs` or `systemd`. Must be called in the event loop."""
    if name != SYSTEMD:
        return CgroupfsDriver(hierarchies, tuple(page_sizes))
    return SystemdDriver(hierarchies, tuple(page_sizes), SystemdUnits())
