"""What podsync wants mounted, by pod; and whether what we know of it may be used to take something away."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bus.messages.podsync import AdmittedPod, PodState
from services.volume.core.volume_spec import Refused, VolumeSpec
from shared.model.objects import Object


@dataclass(frozen=True, kw_only=True)
class DesiredVolumes:
    """One admitted pod's side. `mounting` is False once the pod terminates: nothing new is mounted for it then."""

    uid: str
    name: str
    namespace: str
    mounting: bool
    finished: bool
    volumes: dict[str, VolumeSpec | Refused]


@dataclass
class DesiredStateOfWorld:
    """All admitted pods. `spec_of` reads a volume of a pod."""

    spec_of: Callable[[Object, str], VolumeSpec | Refused]
    pods: dict[str, DesiredVolumes] = field(default_factory=dict)
    # Pods that podsync took away by a word of its own. Not those that a new incarnation does not list: it may just have
    # lost its records and find them again in the runtime.
    taken_away: set[str] = field(default_factory=set)
    complete: bool = False
    stale: bool = True
    _admitted: dict[str, AdmittedPod] = field(default_factory=dict)
    _showing: dict[str, dict[tuple[str, str], None]] = field(default_factory=dict)  # see `showing`; none empty

    @property
    def exhaustive(self) -> bool:
        """Something may be taken away: who is not listed is really gone, and who is listed is as it says."""
        return self.complete and not self.stale

    def admit(self, admitted: AdmittedPod) -> None:
        """podsync says how far it is with this pod."""
        self.taken_away.discard(admitted.uid)
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

    def showing(self, changed: str) -> list[tuple[str, str]]:
        """The volumes, by pod UID and name, that show the object with this key in `objects.changed`."""
        return list(self._showing.get(changed, ()))

    def read_again(self) -> None:
        """What `spec_of` rests on beside the pods has changed."""
        for admitted in list(self._admitted.values()):
            self.admit(admitted)

    def withdraw(self, uid: str) -> None:
        """podsync has nothing of this pod any more: by its own word while its list is complete, else by its silence."""
        self._admitted.pop(uid, None)
        if self._drop(uid) and self.complete:
            self.taken_away.add(uid)

    def _drop(self, uid: str) -> bool:
        """Whether there was such a pod."""
        pod = self.pods.pop(uid, None)
        for changed, volume in _shown(pod) if pod is not None else ():
            showing = self._showing[changed]
            del showing[volume]
            if not showing:
                del self._showing[changed]
        return pod is not None

    def heard(self, *, complete: bool, stale: bool) -> None:
        """The standing of `pods.admitted`."""
        self.complete, self.stale = complete, stale
        if not complete:
            self.taken_away.clear()


def _shown(pod: DesiredVolumes) -> Iterator[tuple[str, tuple[str, str]]]:
    """The objects that each of its volumes shows, once for each volume."""
    for name, spec in pod.volumes.items():
        if isinstance(spec, VolumeSpec):
            yield from ((str(key), (pod.uid, name)) for key in spec.objects)
