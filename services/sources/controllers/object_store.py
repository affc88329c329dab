"""What the strategies of reading Secrets and ConfigMaps have in common (volumes.md 20)."""

from collections.abc import Callable
from typing import Protocol

from bus.messages.sources import FoundObject
from shared.podspec.references import Reference

# A version of the object was seen; "" = the API server has none.
Changed = Callable[[Reference, str], None]
# The object could not be read; it is tried again.
Failed = Callable[[Reference], None]


class ObjectStore(Protocol):
    """One strategy. Asked only for what is referenced."""

    def register(self, reference: Reference) -> None:
        """A pod that names the object came or changed."""
        ...

    def unregister(self, *references: Reference) -> None:
        """No pod names the objects any more."""
        ...

    async def get(self, reference: Reference, *, fresh: bool) -> FoundObject:
        """Read it. `fresh`: from the API server, whatever is known. Never raises for what the API server does."""
        ...

    def sends_first_version(self, reference: Reference) -> bool:
        """Whether a first version of it will come without a request for the object."""
        ...

    def sweep(self) -> None:
        """Some seconds have passed."""
        ...

    async def close(self) -> None:
        """Stop whatever runs."""
        ...


def not_registered(reference: Reference) -> FoundObject:
    """The answer about an object that no pod of this node names."""
    return FoundObject(object=None, error=f'object "{reference.namespace}"/"{reference.name}" not registered')


def single(reference: Reference) -> str:
    """For people: `secret default/token`."""
    return f"{reference.kind.lower()} {reference.namespace}/{reference.name}"
