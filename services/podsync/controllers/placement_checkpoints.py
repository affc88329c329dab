"""Keeps the files of the CPU, memory and device managers in step with the pods' placements, for a Go kubelet that gets
the node back.

The files are derived: the placements are in the records of the pods. A write that failed is repeated with the next
change, and every `RETRY_SECONDS`.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from bus.messages.device_plugins import DeviceResource
from services.podsync.adapters.allocation_bytes import write_answer
from services.podsync.adapters.placement_files import PlacementFiles
from services.podsync.core.checkpoints.device_takeover import device_state_of
from services.podsync.core.checkpoints.takeover import Placements, cpu_state_of, memory_state_of
from services.podsync.core.placement.placing import NodePlacer

log = logging.getLogger(__name__)

RETRY_SECONDS = 10.0


class PlacementCheckpoints:
    """Writes the files of the policies that are static, and the file of devices. `placements` returns the placements of
    the pods that have one. `devices` returns the resources of device plugins, None until all are known. Both return the
    same object until something changes. `placer`: None = no policy is static."""

    def __init__(
        self,
        placer: NodePlacer | None,
        files: PlacementFiles,
        placements: Callable[[], Placements],
        devices: Callable[[], Mapping[str, DeviceResource] | None],
        trouble: Callable[[str, str | None], None],
    ) -> None:
        self._placer, self._files, self._trouble = placer, files, trouble
        self._placements, self._devices = placements, devices
        self._changed = asyncio.Event()
        self._seen: tuple[object, object] = None, None

    def pods_changed(self) -> None:
        """Write the files soon where a placement or the devices have changed."""
        placements, devices = self._placements(), self._devices()
        if placements is not self._seen[0] or devices is not self._seen[1]:
            self._seen = placements, devices
            self._changed.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await asyncio.to_thread(self._write, self._placements(), self._devices())
                self._trouble("placement files", None)
            except OSError as error:
                text = f"the files of placements and devices cannot be written, and are old for a Go kubelet: {error}"
                log.warning("%s", text)
                self._trouble("placement files", text)
                await asyncio.sleep(RETRY_SECONDS)
                self._changed.set()

    def _write(self, placements: Placements, devices: Mapping[str, DeviceResource] | None) -> None:
        if devices is not None:
            self._files.write_devices(device_state_of(placements, devices, write_answer))
        placer = self._placer
        if placer is None:
            return
        if placer.static_cpus:
            self._files.write_cpu(cpu_state_of("static", placer.shared_pool(placements.values()), placements))
        if placer.static_memory:
            machine = placer.memory.machine_memory(placements.values())
            self._files.write_memory(memory_state_of("Static", machine, placements))
