"""Merges the complete set of pods of each source, and returns what has changed (pods.md 1.6).

It depends on neither files nor the API server. A source passes all of its pods, and gets the changes in the order in
which they are to be published: removals first, so that the name is free for a pod that returns under a new UID.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from bus.messages.sources import DesiredPod
from shared.model import objects
from shared.model.conditions import POD_CONDITIONS
from shared.model.fields import dictionary
from shared.model.objects import Object
from shared.podspec.pod_source import SEEN, SOURCE, with_seen


class PodRemoved(Struct, frozen=True):
    """A pod with this UID is in no source any more."""

    uid: str


class PodDesired(Struct, frozen=True):
    """A pod that is to run. `added`: its UID is new."""

    pod: DesiredPod
    added: bool


class StatusChanged(Struct, frozen=True):
    """A pod whose status in the API server has changed in a way that podsync need not know at once."""

    pod: DesiredPod


class Duplicate(Struct, frozen=True):
    """A pod that is dropped, because an earlier pod of the same update has its name, or one from another source its
    UID. It is returned once while it stays so. `message`: the kubelet's FailedValidation text."""

    pod: Object
    message: str


TERMINAL_PHASES = ("Succeeded", "Failed")
MergeChange = PodRemoved | PodDesired | StatusChanged | Duplicate


@dataclass
class DesiredPods:
    """The desired pods of all sources. `sources`: the configured ones; `complete` once all pods of each are published.

    Pods of one name from two sources are both desired; podsync decides which of them has to wait.
    """

    sources: frozenset[str]
    _pods: dict[str, DesiredPod] = field(default_factory=dict)
    _seen: dict[str, str] = field(default_factory=dict)  # UID -> first seen, for UIDs an earlier process published
    _complete: set[str] = field(default_factory=set)  # sources
    _dropped: dict[str, list[Object]] = field(default_factory=dict)  # source -> duplicates of its last update
    _given: dict[str, Object] = field(default_factory=dict)  # UID -> the very object that was merged last

    @property
    def complete(self) -> bool:
        """Return whether all pods of every configured source were merged and published."""
        return self._complete >= self.sources

    def note_complete(self, source: str) -> None:
        """Note that all pods of this source were merged and published."""
        self._complete.add(source)
        if self.complete:
            self._seen = {}  # the times of the earlier process were used by now, or their pods are gone

    def remember(self, uid: str, seen: str) -> None:
        """Note that an earlier process first saw this UID at `seen`: the annotation of a running sandbox must not
        change."""
        if seen:
            self._seen[uid] = seen

    def pod(self, uid: str, source: str) -> Object | None:
        """Return the pod as merged, with its annotations; None for a UID that the source does not have."""
        known = self._pods.get(uid)
        return None if known is None or known.source != source else known.pod

    def merge(self, source: str, pods: Iterable[Object], *, seen: str, recorded: str = "") -> list[MergeChange]:
        """Merge the complete set of a source, and return the changes. Objects never change, so an identical one (`is`)
        that was merged before has no change. `seen`: now, RFC3339 with nine digits, for new UIDs. `recorded`: the
        moment of the record that the pods are from, "" = the source itself has them."""
        wanted: dict[str, Object] = {}
        names: set[tuple[str, str]] = set()
        duplicates: list[Duplicate] = []
        for pod in pods:
            metadata = pod["metadata"]  # the loop runs over all pods at each change of one
            uid, name = metadata["uid"], (metadata["name"], metadata["namespace"])
            if name in names:
                duplicates.append(Duplicate(pod, _duplicate_message(pod, source)))
                continue
            names.add(name)
            holder = self._pods.get(uid)
            if holder is not None and holder.source != source:
                duplicates.append(Duplicate(pod, _taken_message(pod, source, holder.source)))
                continue
            wanted[uid] = pod
        gone = [uid for uid, known in self._pods.items() if known.source == source and uid not in wanted]
        changes: list[MergeChange] = [PodRemoved(uid) for uid in gone]
        added: list[PodDesired] = []
        updated: list[PodDesired | StatusChanged] = []
        for uid, pod in wanted.items():
            if self._given.get(uid) is pod:
                continue
            self._given[uid] = pod
            desired = DesiredPod(uid=uid, source=source, pod=self._annotated(uid, pod, source, seen), recorded=recorded)
            if uid not in self._pods:
                added.append(PodDesired(desired, added=True))
            elif self._pods[uid].recorded or _essence(self._pods[uid].pod) != _essence(desired.pod):
                updated.append(PodDesired(desired, added=False))
            elif self._pods[uid].pod.get("status") != desired.pod.get("status"):
                updated.append(StatusChanged(desired))
            else:
                continue
            self._pods[uid] = desired
        added.sort(key=_created)  # so that older pods are admitted first (pods.md 1.7)
        for uid in gone:
            del self._pods[uid], self._given[uid]
        known_duplicates = {objects.describe(pod) for pod in self._dropped.get(source, ())}
        self._dropped[source] = [duplicate.pod for duplicate in duplicates]
        fresh = [duplicate for duplicate in duplicates if objects.describe(duplicate.pod) not in known_duplicates]
        return [*changes, *added, *updated, *fresh]

    def _annotated(self, uid: str, pod: Object, source: str, seen: str) -> Object:
        known = self._pods.get(uid)
        first_seen = objects.annotations(known.pod)[SEEN] if known else self._seen.get(uid, seen)
        annotations = {**objects.annotations(pod), SOURCE: source}
        return with_seen({**pod, "metadata": {**pod["metadata"], "annotations": annotations}}, first_seen)


def _created(change: PodDesired) -> str:
    """Return when the pod was created, as the API server writes it: in UTC and with one length, so that the texts sort
    by time."""
    created = change.pod.pod["metadata"].get("creationTimestamp")
    return created if isinstance(created, str) else ""


def _essence(pod: Object) -> tuple[object, ...]:
    """Return the parts of a pod that podsync must know at once. Versions, owners and finalizers have no meaning for the
    node, and most of the status is what podsync has computed."""
    metadata = pod["metadata"]
    kept = ("labels", "annotations", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
    return (*(metadata.get(key) for key in kept), pod.get("spec"), _status_for_podsync(pod))


def _status_for_podsync(pod: Object) -> tuple[object, ...]:
    """Return whether the pod has ended, the conditions that are not the node's or that a readiness gate names, and what
    names the pod's resource claims."""
    status = dictionary(pod.get("status"))
    phase, conditions = status.get("phase"), status.get("conditions")
    gates = [gate.get("conditionType") for gate in (pod.get("spec") or {}).get("readinessGates") or ()]
    own = [kind for kind in POD_CONDITIONS if kind not in gates]
    listed = conditions if isinstance(conditions, list) else ()
    others = [entry for entry in listed if not isinstance(entry, dict) or entry.get("type") not in own]
    claims = (status.get("resourceClaimStatuses"), status.get("extendedResourceClaimStatus"))
    return phase if phase in TERMINAL_PHASES else "", others, claims


def _taken_message(pod: Object, source: str, holder: str) -> str:
    return (
        f"Error validating pod {objects.describe(pod)} from {source} due to duplicate pod UID: "
        f"a pod from {holder} has it, ignoring"
    )


def _duplicate_message(pod: Object, source: str) -> str:
    return (
        f"Error validating pod {objects.describe(pod)} from {source} due to duplicate pod name "
        f'"{objects.name(pod)}", ignoring'
    )
