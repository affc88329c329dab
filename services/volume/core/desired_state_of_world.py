"""The volumes that pods need, by pod, and whether this list is certain enough to unmount others; pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from bus.messages.podsync import AdmittedPod, PodState
from services.volume.core.volume_spec import Refused, VolumeSpec
from shared.model.objects import Object


@dataclass(frozen=True, kw_only=True)
class DesiredVolumes:
    """The volumes of one admitted pod. `mounting` is False once the pod terminates: nothing new is mounted for it
    then."""

    uid: str
    name: str
    namespace: str
    mounting: bool
    finished: bool
    volumes: dict[str, VolumeSpec | Refused]


@dataclass
class DesiredStateOfWorld:
    """All admitted pods. `spec_of` reads the volume of this name of a pod."""

    spec_of: Callable[[Object, str], VolumeSpec | Refused]
    pods: dict[str, DesiredVolumes] = field(default_factory=dict)
    # Pods that podsync has deleted from its list. Not those that a new incarnation does not list: it may have lost its
    # records and find these pods again in the runtime.
    withdrawn: set[str] = field(default_factory=set)
    complete: bool = False
    stale: bool = True
    hold_until: float = 0.0  # monotonic seconds: a provisional volume is not set up before
    _admitted: dict[str, AdmittedPod] = field(default_factory=dict)
    _showing: dict[str, dict[tuple[str, str], None]] = field(default_factory=dict)  # see `showing`; none empty
    _sharing: dict[str, dict[tuple[str, str], None]] = field(default_factory=dict)  # see `sharing`; none empty

    @property
    def exhaustive(self) -> bool:
        """Return whether something may be unmounted: every pod is listed, in its present state."""
        return self.complete and not self.stale

    def admit(self, admitted: AdmittedPod) -> None:
        """Take the state of a pod that podsync publishes."""
        self.withdrawn.discard(admitted.uid)
        self._admitted[admitted.uid] = admitted
        pod = DesiredVolumes(
            uid=admitted.uid,
            name=admitted.name,
            namespace=admitted.namespace,
            mounting=admitted.state is PodState.SYNC,
            finished=admitted.finished,
            volumes={name: self.spec_of(admitted.pod, name) for name in admitted.volumes},
        )
        self._drop(admitted.uid)
        self.pods[admitted.uid] = pod
        for changed, volume in _shown(pod):
            self._showing.setdefault(changed, {})[volume] = None
        for unique_name, volume in _shared(pod):
            self._sharing.setdefault(unique_name, {})[volume] = None

    def showing(self, changed: str) -> list[tuple[str, str]]:
        """Return the volumes, by pod UID and name, that show the object with this key in `objects.changed`."""
        return list(self._showing.get(changed, ()))

    def sharing(self, unique_name: str) -> list[tuple[str, str]]:
        """Return the volumes, by pod UID and name, whose device has this unique name."""
        return list(self._sharing.get(unique_name, ()))

    def unique_names(self) -> list[str]:
        """Return the unique name of each device that some pod's volume has."""
        return list(self._sharing)

    def read_again(self) -> None:
        """Read every volume again: what `spec_of` uses beside the pods has changed."""
        for admitted in list(self._admitted.values()):
            self.admit(admitted)

    def withdraw(self, uid: str) -> None:
        """podsync does not list this pod any more: it deleted it while its list was complete, or never had it."""
        self._admitted.pop(uid, None)
        if self._drop(uid) and self.complete:
            self.withdrawn.add(uid)

    def _drop(self, uid: str) -> bool:
        """Forget a pod; whether there was one."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            _remove(self._showing, _shown(pod))
            _remove(self._sharing, _shared(pod))
        return pod is not None

    def set_freshness(self, *, complete: bool, stale: bool) -> None:
        """The list of `pods.admitted` is complete, or is not; what we have of it is stale, or is not."""
        self.complete, self.stale = complete, stale
        if not complete:
            self.withdrawn.clear()


def _shown(pod: DesiredVolumes) -> Iterator[tuple[str, tuple[str, str]]]:
    """The objects that each of its volumes shows, once for each volume."""
    for name, spec in pod.volumes.items():
        if isinstance(spec, VolumeSpec):
            yield from ((str(key), (pod.uid, name)) for key in spec.objects)


def _shared(pod: DesiredVolumes) -> Iterator[tuple[str, tuple[str, str]]]:
    """The unique name of the device of each of its volumes that has one."""
    for name, spec in pod.volumes.items():
        if isinstance(spec, VolumeSpec) and spec.unique_name:
            yield spec.unique_name, (pod.uid, name)


def _remove(index: dict[str, dict[tuple[str, str], None]], entries: Iterable[tuple[str, tuple[str, str]]]) -> None:
    for key, volume in entries:
        del index[key][volume]
        if not index[key]:
            del index[key]
