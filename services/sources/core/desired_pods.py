"""The merge: the complete set of each source against what was desired before (reference pods.md 1.6).

Knows nothing of files or the API server; a source hands in everything it has, and gets the changes in the order they
are to be told: removals first, so that a pod that comes back under a new UID finds its name free.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from bus.messages.sources import DesiredPod
from shared.model import objects
from shared.model.objects import Object
from shared.podspec.static_pod import SEEN, SOURCE, with_seen


@dataclass(frozen=True)
class Removed:
    """No source wants this UID any more."""

    uid: str


@dataclass(frozen=True)
class Wanted:
    """This pod is to run; `added` when its UID is new."""

    pod: DesiredPod
    added: bool


@dataclass(frozen=True)
class Duplicate:
    """Dropped: an earlier pod of the same update has its name. `message` is the kubelet's FailedValidation text."""

    pod: Object
    message: str


MergeChange = Removed | Wanted | Duplicate


@dataclass
class DesiredPods:
    """What all sources together want. `sources` are those configured; `complete` once each has reported."""

    sources: frozenset[str]
    _pods: dict[str, DesiredPod] = field(default_factory=dict)
    _seen: dict[str, str] = field(default_factory=dict)  # UID -> first seen, for UIDs an earlier life published
    _reported: set[str] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        """Every configured source has merged at least once."""
        return self._reported >= self.sources

    def remember(self, uid: str, seen: str) -> None:
        """An earlier life first saw this UID at `seen`: the annotation of a running pod's sandbox must not change."""
        if seen:
            self._seen[uid] = seen

    def pod(self, uid: str) -> Object | None:
        """The pod as merged, with its annotations; None for a UID that no source wants."""
        known = self._pods.get(uid)
        return None if known is None else known.pod

    def merge(self, source: str, pods: Iterable[Object], *, seen: str) -> list[MergeChange]:
        """Take a source's complete set. `seen`: now, RFC3339 with nine digits, for UIDs that are new."""
        wanted: dict[str, Object] = {}
        names: set[str] = set()
        duplicates: list[MergeChange] = []
        for pod in pods:
            if objects.full_name(pod) in names:
                duplicates.append(Duplicate(pod, _duplicate_message(pod, source)))
                continue
            names.add(objects.full_name(pod))
            wanted[objects.uid(pod)] = pod
        before = {uid for uid, known in self._pods.items() if known.source == source}
        changes: list[MergeChange] = [Removed(uid) for uid in self._pods if uid in before - wanted.keys()]
        added: list[MergeChange] = []
        updated: list[MergeChange] = []
        for uid, pod in wanted.items():
            desired = DesiredPod(uid=uid, source=source, pod=self._annotated(uid, pod, source, seen))
            if uid not in self._pods:
                added.append(Wanted(desired, added=True))
            elif self._pods[uid] != desired:
                updated.append(Wanted(desired, added=False))
            self._pods[uid] = desired
        for uid in before - wanted.keys():
            del self._pods[uid]
        self._seen = {}  # what an earlier life knew has been used, or its pod is gone
        self._reported.add(source)
        return [*changes, *added, *updated, *duplicates]

    def _annotated(self, uid: str, pod: Object, source: str, seen: str) -> Object:
        known = self._pods.get(uid)
        first_seen = objects.annotations(known.pod)[SEEN] if known else self._seen.get(uid, seen)
        annotations = {**objects.annotations(pod), SOURCE: source}
        return with_seen({**pod, "metadata": {**pod["metadata"], "annotations": annotations}}, first_seen)


def _duplicate_message(pod: Object, source: str) -> str:
    return (
        f"Error validating pod {objects.describe(pod)} from {source} due to duplicate pod name "
        f'"{objects.name(pod)}", ignoring'
    )
