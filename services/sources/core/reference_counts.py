"""Counts which pods of this node refer to which Secrets and ConfigMaps; pure (volumes.md 20)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shared.podspec.references import Reference


@dataclass
class ReferenceCounts:
    """The references of pods, by pod UID."""

    _by_pod: dict[str, dict[Reference, bool]] = field(default_factory=dict)
    _pods: dict[Reference, dict[str, None]] = field(default_factory=dict)  # reference -> the pods that have it
    _shown: Counter[Reference] = field(default_factory=Counter)  # reference -> how many pods have it in a volume

    def register(self, uid: str, references: Mapping[Reference, bool]) -> tuple[list[Reference], list[Reference]]:
        """Set what the pod refers to, True = in a volume. Return the references that it did not have before, or not in
        a volume, and those that no pod has any more."""
        before = self._by_pod.get(uid, {})
        self._by_pod[uid] = dict(references)
        self._drop(uid, before)
        for reference, shown in references.items():
            self._pods.setdefault(reference, {})[uid] = None
            self._shown[reference] += shown
        new = [reference for reference, shown in references.items() if before.get(reference) not in (shown, True)]
        return new, [reference for reference in before if reference not in self]

    def unregister(self, uid: str) -> list[Reference]:
        """Forget a pod, and return the references that no pod has any more."""
        before = self._by_pod.pop(uid, {})
        self._drop(uid, before)
        return [reference for reference in before if reference not in self]

    @property
    def references(self) -> set[Reference]:
        """Return every reference that some pod has."""
        return set(self._pods)

    def pods(self, reference: Reference) -> Iterable[str]:
        """Return the UIDs of the pods that have the reference."""
        return self._pods.get(reference, ())

    def __contains__(self, reference: Reference) -> bool:
        """Return whether some pod has the reference."""
        return reference in self._pods

    def is_shown(self, reference: Reference) -> bool:
        """Return whether some pod has the reference in a volume."""
        return self._shown[reference] > 0

    def _drop(self, uid: str, references: Mapping[Reference, bool]) -> None:
        for reference, shown in references.items():
            self._shown[reference] -= shown
            del self._pods[reference][uid]
            if not self._pods[reference]:
                del self._pods[reference], self._shown[reference]
