"""Which Secrets and ConfigMaps the pods of this node refer to, counted by pod; pure (volumes.md 20)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shared.podspec.references import Reference


@dataclass
class ReferenceCounts:
    """References by pod UID."""

    _by_pod: dict[str, dict[Reference, bool]] = field(default_factory=dict)
    _pods: dict[Reference, dict[str, None]] = field(default_factory=dict)  # which refer to it
    _shown: Counter[Reference] = field(default_factory=Counter)  # how many of them have it in a volume

    def register(self, uid: str, references: Mapping[Reference, bool]) -> tuple[list[Reference], list[Reference]]:
        """The pod refers to these now, True = a volume shows it. Those that it did not refer to before, or not in a
        volume; and those that no pod refers to any more."""
        before = self._by_pod.get(uid, {})
        self._by_pod[uid] = dict(references)
        self._drop(uid, before)
        for reference, shown in references.items():
            self._pods.setdefault(reference, {})[uid] = None
            self._shown[reference] += shown
        new = [reference for reference, shown in references.items() if before.get(reference) not in (shown, True)]
        return new, [reference for reference in before if reference not in self]

    def unregister(self, uid: str) -> list[Reference]:
        """The pod is no longer. The references that no pod has any more."""
        before = self._by_pod.pop(uid, {})
        self._drop(uid, before)
        return [reference for reference in before if reference not in self]

    @property
    def references(self) -> set[Reference]:
        """Everything that some pod refers to."""
        return set(self._pods)

    def pods(self, reference: Reference) -> Iterable[str]:
        """The UIDs of the pods that refer to it."""
        return self._pods.get(reference, ())

    def __contains__(self, reference: Reference) -> bool:
        """Some pod refers to it."""
        return reference in self._pods

    def is_shown(self, reference: Reference) -> bool:
        """Some pod has it in a volume."""
        return self._shown[reference] > 0

    def _drop(self, uid: str, references: Mapping[Reference, bool]) -> None:
        for reference, shown in references.items():
            self._shown[reference] -= shown
            del self._pods[reference][uid]
            if not self._pods[reference]:
                del self._pods[reference], self._shown[reference]
