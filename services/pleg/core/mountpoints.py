"""Finds where the runtime keeps images and writable layers, from its own report. Pure."""

from msgspec import Struct

from shared.cri.interface import RuntimeFilesystems


class Mountpoints(Struct, frozen=True):
    """Has mount points; "" = on the filesystem of the root directory. Only a split disk has two different ones."""

    images: str = ""
    layers: str = ""

    @property
    def split(self) -> bool:
        """Whether images and writable layers are in different places."""
        return self.images != self.layers


def mountpoints_of(reported: RuntimeFilesystems) -> Mountpoints:
    """Return the first filesystem of each kind. A runtime that names none for writable layers keeps them with the
    images."""
    images = reported.images[0].mountpoint if reported.images else ""
    return Mountpoints(images, reported.containers[0].mountpoint if reported.containers else images)
