"""A cluster of which podsync can read nothing."""

from contextlib import AbstractAsyncContextManager, nullcontext

from services.podsync.adapters.cluster_reads import NOTHING_TO_READ, LocalReads
from services.podsync.core.cri.environment import ReferencedObject, References, environment_references
from shared.model.objects import Object


class NoCluster(LocalReads):
    """Reads nothing; what a container refers to is missing."""

    def __init__(self) -> None:
        """There is no bus."""

    def references(self, pod: Object, container: Object) -> AbstractAsyncContextManager[References]:
        missing = ReferencedObject(None, error=NOTHING_TO_READ)
        return nullcontext(dict.fromkeys(environment_references(container), missing))

    async def secret(self, space: str, name: str) -> ReferencedObject:
        return ReferencedObject(None, error=NOTHING_TO_READ)
