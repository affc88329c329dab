"""The key of a Secret or ConfigMap that a volume shows; pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ObjectKey:
    """A Secret or ConfigMap; `kind` is one of these two words."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """Return its key in the stream `objects.changed`."""
        return f"{self.kind}/{self.namespace}/{self.name}"
