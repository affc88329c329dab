"""The key of an API object that a volume depends on; pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ObjectKey:
    """`kind`: as in GetObject. A PersistentVolume, CSIDriver or VolumeAttachment has no namespace."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """Return its key in the stream `objects.changed`."""
        return f"{self.kind}/{self.namespace}/{self.name}"
