"""Which Secrets and ConfigMaps the pods of this node refer to, counted by pod; pure (reference volumes.md 20)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.podspec.references import Reference


@dataclass
class ReferenceCounts:
    """References by pod UID."""

    _by_pod: dict[str, dict[Reference, bool]] = field(default_factory=dict)
    _pods: Counter[Reference] = field(default_factory=Counter)  # how many refer to it
    _shown: Counter[Reference] = field(default_factory=Counter)  # and how many of them have it in a volume

    def register(self, uid: str, references: Mapping[Reference, bool]) -> tuple[list[Reference], list[Reference]]:
        """The pod refers to these now, True = a volume shows it. Those that it did not refer to before, or not in a
        volume; and those that no pod refers to any more."""
        before = self._by_pod.get(uid, {})
        self._by_pod[uid] = dict(references)
        self._count(references, 1)
        self._count(before, -1)
        new = [reference for reference, shown in references.items() if before.get(reference) not in (shown, True)]
        return new, [reference for reference in before if reference not in self]

    def unregister(self, uid: str) -> list[Reference]:
        """The pod is no longer. The references that no pod has any more."""
        before = self._by_pod.pop(uid, {})
        self._count(before, -1)
        return [reference for reference in before if reference not in self]

    @property
    def references(self) -> set[Reference]:
        """Everything that some pod refers to."""
        return set(self._pods)

    def __contains__(self, reference: Reference) -> bool:
        """Some pod refers to it."""
        return reference in self._pods

    def is_shown(self, reference: Reference) -> bool:
        """Some pod has it in a volume."""
        return self._shown[reference] > 0

    def _count(self, references: Mapping[Reference, bool], change: int) -> None:
        for reference, shown in references.items():
            for counts, counted in ((self._pods, True), (self._shown, shown)):
                if counted:
                    counts[reference] += change
                    if not counts[reference]:
                        del counts[reference]
