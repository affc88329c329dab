"""Which Secrets and ConfigMaps the pods of this node refer to, counted by pod; pure (reference volumes.md 20)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.podspec.references import Reference


@dataclass
class ReferenceCounts:
    """References by pod UID."""

    _by_pod: dict[str, dict[Reference, bool]] = field(default_factory=dict)

    def register(self, uid: str, references: Mapping[Reference, bool]) -> set[Reference]:
        """The pod refers to these now, True = a volume shows it. The references nobody has any more."""
        before = self._by_pod.get(uid, {})
        self._by_pod[uid] = dict(references)
        return {reference for reference in before if reference not in self}

    def unregister(self, uid: str) -> set[Reference]:
        """The pod is no longer. The references nobody has any more."""
        before = self._by_pod.pop(uid, {})
        return {reference for reference in before if reference not in self}

    @property
    def references(self) -> set[Reference]:
        """Everything that some pod refers to."""
        return {reference for references in self._by_pod.values() for reference in references}

    def __contains__(self, reference: Reference) -> bool:
        """Some pod refers to it."""
        return any(reference in references for references in self._by_pod.values())

    def is_shown(self, reference: Reference) -> bool:
        """Some pod has it in a volume."""
        return any(references.get(reference, False) for references in self._by_pod.values())
