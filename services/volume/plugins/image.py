"""Supports image volumes, which the runtime itself mounts into the containers (volumes.md 13.8)."""

from msgspec import Struct

from services.volume.core.files.payload import SetUpInputs
from services.volume.core.operations.outcome import FoundVolume
from services.volume.core.specs.volume_spec import Node, VolumeSpec
from services.volume.plugins.plugin import VolumePlugin
from shared.files.tree_removal import RemovalProgress
from shared.model.objects import Object


class Image(Struct, frozen=True):
    """An image, which podsync pulls and passes to the runtime; nothing of it is set up here."""


class ImagePlugin(VolumePlugin[Image]):
    """Supports image volumes. One counts as mounted as soon as the pod has its directories."""

    name = "kubernetes.io/image"

    @classmethod
    def read(cls, pod: Object, volume: str, source: Object, node: Node) -> VolumeSpec:
        """Return the spec of the image volume."""
        return VolumeSpec(plugin=cls.name, source=Image(), has_directory=False, read_only=True)

    def set_up(self, uid: str, volume: str, source: Image, gathered: SetUpInputs) -> str:
        """Return "", because the volume has no path on the node."""
        self._directories.make(uid)
        return ""

    def tear_down(self, uid: str, volume: str, removed: RemovalProgress) -> None:
        """Do nothing, because the runtime unmounts the image."""

    def reconstruct(self, uid: str) -> list[FoundVolume]:
        """Return nothing, because image volumes have no directory."""
        return []
