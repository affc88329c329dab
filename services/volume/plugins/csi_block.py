"""Publishes and maps block volumes of CSI drivers for each pod, and unmaps and unpublishes them (volumes.md 14.10).

The link of the pod is made before the driver is called, and removed after the driver was called to unpublish the
device, because a restarted process finds the volume by it.
"""

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from services.volume.adapters.block_devices import is_block_device
from services.volume.adapters.block_maps import make_link, map_device, remove_link, unmap_device
from services.volume.adapters.csi_block_directories import CsiBlockDirectories
from services.volume.adapters.csi_client import CsiClient, is_final
from services.volume.adapters.csi_records import save_record
from services.volume.core.files.payload import SetUpInputs
from services.volume.core.specs.csi_attachment import publish_context_of, secret_of
from services.volume.core.specs.csi_volume import PREFIX, CsiVolume, publish_context
from shared.plugin_grpc.connection import PluginCallError
from shared.pods.directory import make_directory

_NO_CLIENT = "failed to get CSI client"


class CsiBlockVolumes:
    """Maps block volumes of CSI drivers. `client` connects to the driver of this name; its second argument begins the
    text of an error. Methods raise OSError."""

    def __init__(
        self, directories: CsiBlockDirectories, client: Callable[[str, str], AbstractContextManager[CsiClient]]
    ) -> None:
        self.directories, self._client = directories, client

    def map(self, link: Path, uid: str, name: str, source: CsiVolume, gathered: SetUpInputs) -> str:
        """Publish the device for the pod and map it; return the path of the pod's link to it. Raises
        ContentError beside what a client raises."""
        target = self.directories.target(name, uid)
        with self._client(source.driver, f"{PREFIX}blockMapper.MapPodDevice {_NO_CLIENT}") as client:
            attachment = publish_context_of(source, gathered)
            secrets = secret_of(source.publish_secret, "NodePublishSecretRef", gathered)
            context = publish_context(source, gathered, secrets)
            is_new = not link.is_symlink()
            make_directory(self.directories.data(name), 0o750)
            save_record(self.directories.data(name), source.record())
            if is_new:
                make_link(link, str(target))
            make_directory(target.parent, 0o750)
            staging = gathered.device_path or str(self.directories.staging(name))
            try:
                client.publish(source, str(target), staging, attachment, context.volume, context.secrets, "")
            except PluginCallError as error:
                if is_new and is_final(error.code):
                    self.directories.remove_target(name, uid)
                    remove_link(link)
                raise
        device = os.path.realpath(target)
        if not is_block_device(device):
            raise OSError(errno.ENOTBLK, f"{PREFIX}{target} is no block device after the driver answered")
        map_device(device, self.directories.global_map(name), uid, link)
        return str(link)

    def unmap(self, link: Path, uid: str, name: str) -> None:
        """Unmap the device from the pod and unpublish it, if it is mapped or published."""
        target = self.directories.target(name, uid)
        if not link.is_symlink() and not os.path.lexists(target):
            return
        unmap_device(self.directories.global_map(name), uid)
        record = self.directories.record(name)
        with self._client(record["driverName"], f"{PREFIX}blockMapper.UnmapPodDevice {_NO_CLIENT}") as client:
            client.unpublish(record["volumeHandle"], str(target))
        self.directories.remove_target(name, uid)
        remove_link(link)

    def unmap_device(self, driver: str, handle: str) -> None:
        """Unstage the device for each PersistentVolume that has it, if any has."""
        for name, record in self.directories.records().items():
            if (record["driverName"], record["volumeHandle"]) != (driver, handle):
                continue
            self.directories.require_unused(name)
            staging = self.directories.staging(name)
            if staging.is_dir():
                with self._client(driver, f"{PREFIX}blockMapper.TearDownDevice {_NO_CLIENT}") as client:
                    if client.has("STAGE_UNSTAGE_VOLUME"):
                        client.unstage(handle, str(staging))
            self.directories.remove(name)
