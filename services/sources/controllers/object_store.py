"""Defines the interface of the strategies that read Secrets and ConfigMaps (volumes.md 20)."""

from collections.abc import Callable
from typing import Protocol

from bus.messages.sources import FoundObject
from shared.podspec.references import Reference

# Called with each version of an object that was seen; "" = the API server has none.
Changed = Callable[[Reference, str], None]
# Called when an object could not be read; it is tried again.
Failed = Callable[[Reference], None]


class ObjectStore(Protocol):
    """One strategy of reading objects. Only objects that pods name are requested from it."""

    def register(self, reference: Reference) -> None:
        """Note that a pod which names the object came or changed."""
        ...

    def unregister(self, *references: Reference) -> None:
        """Forget the objects, which no pod names any more."""
        ...

    async def get(self, reference: Reference, *, fresh: bool) -> FoundObject:
        """Return the object. `fresh`: as the API server has it now. It never raises because of the API server."""
        ...

    def sends_first_version(self, reference: Reference) -> bool:
        """Return whether a first version of the object will come without a request for it."""
        ...

    def sweep(self) -> None:
        """Close watches that are not used any more; it is called every few seconds."""
        ...

    async def close(self) -> None:
        """Stop all reads and watches."""
        ...


def not_registered(reference: Reference) -> FoundObject:
    """Return the answer about an object that no pod of this node names."""
    return FoundObject(object=None, error=f'object "{reference.namespace}"/"{reference.name}" not registered')


def describe(reference: Reference) -> str:
    """Return the object's name in log lines, such as `secret default/token`."""
    return f"{reference.kind.lower()} {reference.namespace}/{reference.name}"
