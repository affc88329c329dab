"""Keeps the volumes that pods need, by pod, and whether this list is certain enough to unmount others; pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from bus.messages.podsync import PodState, PodVolumes
from services.volume.core.specs.volume_spec import Refused, Unprocessed, VolumeSpec
from shared.model.frozen_copy import replace
from shared.model.objects import Object


@dataclass(frozen=True, kw_only=True)
class DesiredVolumes:
    """The volumes of one admitted pod, by their names in the pod. `mounting` is False once the pod terminates: nothing
    new is mounted for it then. `mounts`: what is to be mounted, by `key`; two names of one PersistentVolume are one
    mount."""

    uid: str
    name: str
    namespace: str
    mounting: bool
    finished: bool
    volumes: dict[str, VolumeSpec | Refused]
    mounts: dict[str, VolumeSpec] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for name, spec in self.volumes.items():
            if isinstance(spec, VolumeSpec):
                self.mounts.setdefault(spec.key or name, spec)

    def key(self, name: str) -> str:
        """Return the key in `mounts` of the volume with this name in the pod."""
        spec = self.volumes.get(name)
        return spec.key or name if isinstance(spec, VolumeSpec) else name

    @property
    def has_refused(self) -> bool:
        """Return whether a volume is refused because of its claim or its driver. Then a mounted volume of a plugin with
        keys of its own may belong to it."""
        return any(isinstance(spec, Refused) for spec in self.volumes.values())


@dataclass
class DesiredStateOfWorld:
    """All admitted pods with their volumes. `spec_of` reads the volume of this name of a pod; `is_mounted`: whether the
    volume with this key of the pod with this UID is mounted."""

    spec_of: Callable[[Object, str], VolumeSpec | Refused]
    is_mounted: Callable[[str, str], bool] = lambda uid, key: False
    pods: dict[str, DesiredVolumes] = field(default_factory=dict)
    # Pods that podsync has deleted from its list, but not those that a new incarnation of it does not list: it may have
    # lost its records and find these pods again in the runtime.
    withdrawn: set[str] = field(default_factory=set)
    complete: bool = False
    stale: bool = True
    hold_until: float = 0.0  # monotonic seconds: a provisional volume is not set up before
    _admitted: dict[str, PodVolumes] = field(default_factory=dict)
    _showing: dict[str, dict[tuple[str, str], None]] = field(default_factory=dict)  # see `showing`; none empty
    _sharing: dict[str, dict[tuple[str, str], None]] = field(default_factory=dict)  # see `sharing`; none empty

    @property
    def exhaustive(self) -> bool:
        """Return whether something may be unmounted: every pod is listed, in its present state."""
        return self.complete and not self.stale

    def admit(self, admitted: PodVolumes) -> None:
        """Store the state of a pod that podsync publishes."""
        self.withdrawn.discard(admitted.uid)
        self._admitted[admitted.uid] = admitted
        before = self.pods.get(admitted.uid)
        specs = {name: self.spec_of(admitted.pod, name) for name in admitted.volumes}
        pod = DesiredVolumes(
            uid=admitted.uid,
            name=admitted.name,
            namespace=admitted.namespace,
            mounting=admitted.state is PodState.SYNC,
            finished=admitted.finished,
            volumes={name: self._kept(spec, before, name) for name, spec in specs.items()},
        )
        self._drop(admitted.uid)
        self.pods[admitted.uid] = pod
        for changed, volume in _shown(pod):
            self._showing.setdefault(changed, {})[volume] = None
        for unique_name, volume in _shared(pod):
            self._sharing.setdefault(unique_name, {})[volume] = None

    def _kept(self, spec: VolumeSpec | Refused, before: DesiredVolumes | None, name: str) -> VolumeSpec | Refused:
        """Return the new spec, or the earlier one where the pod keeps that.

        A claim that was resolved once stays resolved for its pod, so that a claim which is deleted or made again
        unmounts nothing. A mounted volume stays as it is while it is refused. A mounted volume of a driver also stays
        as it is when the objects that describe it are edited, except for its size, and unless the driver requires
        repeated calls.
        """
        earlier = before.volumes.get(name) if before is not None else None
        if before is None or not isinstance(earlier, VolumeSpec):
            return spec
        if isinstance(spec, Refused):
            unresolved = isinstance(spec, Unprocessed) and bool(earlier.claim)
            return earlier if unresolved or self.is_mounted(before.uid, before.key(name)) else spec
        if earlier.claim and spec.claim and spec.key != earlier.key:
            return earlier
        edited = bool(earlier.served_by) and not spec.requires_remount
        if not edited or not self.is_mounted(before.uid, before.key(name)):
            return spec
        if spec.unique_name != earlier.unique_name:
            return earlier
        return replace(earlier, capacity=spec.capacity, expansion=spec.expansion)

    def showing(self, changed: str) -> list[tuple[str, str]]:
        """Return the volumes, by pod UID and key, that show the object with this key in `objects.changed`."""
        return list(self._showing.get(changed, ()))

    def sharing(self, unique_name: str) -> list[tuple[str, str]]:
        """Return the volumes, by pod UID and key, whose device has this unique name."""
        return list(self._sharing.get(unique_name, ()))

    def unique_names(self) -> list[str]:
        """Return the unique name of each device that some pod's volume has."""
        return list(self._sharing)

    def spec_of_device(self, unique_name: str) -> VolumeSpec | None:
        """Return the spec of one of the volumes with this device."""
        uid, key = next(iter(self._sharing.get(unique_name, ())), ("", ""))
        return self.pods[uid].mounts[key] if uid else None

    def read_again(self, uids: Iterable[str] | None = None) -> None:
        """Read the volumes of these pods again, None = of all, because what `spec_of` uses beside the pods has
        changed."""
        for uid in list(self._admitted if uids is None else uids):
            if (admitted := self._admitted.get(uid)) is not None:
                self.admit(admitted)

    def withdraw(self, uid: str) -> None:
        """Remove a pod that podsync does not list any more. It is withdrawn if the list is complete."""
        self._admitted.pop(uid, None)
        if self._drop(uid) and self.complete:
            self.withdrawn.add(uid)

    def _drop(self, uid: str) -> bool:
        """Forget a pod; return whether there was one."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            _remove(self._showing, _shown(pod))
            _remove(self._sharing, _shared(pod))
        return pod is not None

    def set_freshness(self, *, complete: bool, stale: bool) -> None:
        """Set whether the list of `pods.volumes` is complete, and whether our copy of it is stale."""
        self.complete, self.stale = complete, stale
        if not complete:
            self.withdrawn.clear()


def _shown(pod: DesiredVolumes) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each object that a volume of the pod shows, with that volume."""
    for name, spec in pod.mounts.items():
        yield from ((str(key), (pod.uid, name)) for key in spec.objects)


def _shared(pod: DesiredVolumes) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the unique name of the device of each volume of the pod that has one, with that volume."""
    for name, spec in pod.mounts.items():
        if spec.unique_name:
            yield spec.unique_name, (pod.uid, name)


def _remove(index: dict[str, dict[tuple[str, str], None]], entries: Iterable[tuple[str, tuple[str, str]]]) -> None:
    for key, volume in entries:
        del index[key][volume]
        if not index[key]:
            del index[key]
