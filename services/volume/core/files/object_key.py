"""Defines the key of an API object that a volume depends on; pure."""

from msgspec import Struct


class ObjectKey(Struct, frozen=True):
    """The key of an API object. `kind`: as in GetObject; `namespace`: "" for a PersistentVolume, CSIDriver or
    VolumeAttachment."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """Return the key of the object in the stream `objects.changed`."""
        return f"{self.kind}/{self.namespace}/{self.name}"
