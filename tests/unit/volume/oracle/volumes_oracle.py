"""Computes what a kubelet does about volumes after each event: written from volumes.md 2-6, and from nothing
else. It shares no code with the product.

Where the reference leaves the order free, or the product may be more careful, an operation is allowed and not required.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

SET_UP, TEAR_DOWN, MOUNT_DEVICE, UNMOUNT_DEVICE = "SetUp", "TearDown", "MountDevice", "UnmountDevice"
ORPHAN_SECONDS = 2.0  # between two cleanups of orphans (volumes.md 2.1)
FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 0.5, 122.0  # the back-off of volumes.md 2.1

Operation = tuple[str, str, str]  # name, pod UID ("" for a device), key of the volume or unique name of the device


@dataclass(frozen=True, kw_only=True)
class Ability:
    """What a plugin and its driver can do with a volume (volumes.md 13.0, 14). `device`: the unique name of its device,
    "" = the pod's volume alone; `stages`: something of the device is on disk; `remounts`: SetUp is repeated;
    `serves_found`: it is used as found after a restart; `one_pod`: ReadWriteOncePod."""

    key: str
    plugin: str
    device: str = ""
    attachable: bool = False
    stages: bool = False
    remounts: bool = False
    serves_found: bool = False
    on_disk: bool = True
    one_pod: bool = False
    block: bool = False


@dataclass
class _Wait:
    name: str
    failures: int
    may_at: float
    must_at: float
    unanswered: bool = False


@dataclass
class Pod:
    """A pod as podsync lists it: `runs` False = it ends, and keeps its volumes until its containers are gone."""

    runs: bool
    volumes: dict[str, Ability]


@dataclass
class Oracle:
    """The desired and the actual state of the world as the reference has them, and what may or must begin now."""

    attachable: set[str]  # unique names of the devices whose drivers attach
    pods: dict[str, Pod] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)  # taken from a complete list
    listed: bool = False  # the list is complete and fresh
    all_found: bool = True
    mounted: dict[tuple[str, str], str] = field(default_factory=dict)  # "mounted", "uncertain" or "found"
    touched: dict[tuple[str, str], Ability] = field(default_factory=dict)  # of which something was begun or found
    of_unknown_device: set[tuple[str, str]] = field(default_factory=set)
    devices: dict[str, str] = field(default_factory=dict)  # "mounted" or "uncertain"
    touched_devices: dict[str, bool] = field(default_factory=dict)  # -> attachable, or may be so
    running: set[Operation] = field(default_factory=set)
    performed: set[Operation] = field(default_factory=set)  # those of `running` that have had their turn
    waiting: set[Operation] = field(default_factory=set)  # unmounts that only a mount keeps from beginning
    remount: set[tuple[str, str]] = field(default_factory=set)
    reported: dict[str, int] = field(default_factory=dict)  # by a write of this process -> version of the Node
    node_in_use: set[str] = field(default_factory=set)  # volumesInUse of the API server
    earlier: set[str] = field(default_factory=set)  # volumesInUse at the start, until everything is known
    attached: set[str] = field(default_factory=set)  # volumesAttached as this process has seen it
    node_version: int = 0  # of the Node that it has seen
    _first: set[tuple[str, str]] = field(default_factory=set)  # of which nothing was begun before
    _released: set[tuple[str, str]] = field(default_factory=set)  # begun before another pod let go of the volume
    _waits: dict[tuple[str, str], _Wait] = field(default_factory=dict)
    _unknown_since: dict[str, float] = field(default_factory=dict)

    def due(self, now: float) -> tuple[set[Operation], set[Operation]]:
        """Return what must begin at `now`, and what may begin (volumes.md 3.1, 3.2)."""
        must, may = set[Operation](), set[Operation]()
        self._unmounts(now, must, may)
        self._mounts(now, must, may)
        self._device_unmounts(must, may)
        busy = {(uid, key) for _, uid, key in self.running}
        may = {one for one in may if one[1:] not in busy and self._wait(one, now, may=True)}
        must = {one for one in must & may if self._wait(one, now, may=False)}
        self.performed &= self.running
        excluded = {one for one in may if any(self.excludes(other, one) for other in self._excluding(one))}
        self.waiting = {one for one in must & excluded if one[0] == TEAR_DOWN}
        waits = {one for one in may if any(self.excludes(other, one) for other in self.waiting)}
        return must - excluded - waits, may - excluded

    def _excluding(self, one: Operation) -> set[Operation]:
        """Return what runs and may exclude an operation: an unmount waits for calls, and not for what they need."""
        return self.performed if one[0] == TEAR_DOWN else self.running

    def excludes(self, one: Operation, other: Operation) -> bool:
        """Return whether only one of two different operations may run (volumes.md 5.1): a mount has the key of the
        volume, whichever pod it is for, an unmount that of the volume and its pod. Mounts of one volume may begin
        beside each other here; they are performed one after another, and a mount that is not performed yet excludes
        nothing."""
        device = self._device_of(one)
        return (
            bool(device) and device == self._device_of(other) and TEAR_DOWN in (one[0], other[0]) and one[0] != other[0]
        )

    def _device_of(self, operation: Operation) -> str:
        name, uid, key = operation
        if not uid:
            return key
        if name == TEAR_DOWN and (uid, key) in self.of_unknown_device:
            return ""
        ability = self.touched.get((uid, key)) or self._desired(uid, key)
        return ability.device if ability is not None else ""

    def _unmounts(self, now: float, must: set[Operation], may: set[Operation]) -> None:
        for uid in [uid for uid in self._unknown_since if uid in self.pods or not self.listed]:
            del self._unknown_since[uid]
        if not self.listed:  # volumes.md 2.4: nothing of a pod that is not known yet is unmounted
            return
        for (uid, key), ability in self.touched.items():
            if self._desired(uid, key) is not None:
                continue
            operation = (TEAR_DOWN, uid, key)
            if not ability.on_disk:
                continue
            unknown = uid not in self.pods and uid not in self.deleted
            since = self._unknown_since.setdefault(uid, now) if unknown else 0.0
            may.add(operation)
            if (uid, key) in self.mounted and now - since >= ORPHAN_SECONDS:
                must.add(operation)

    def _mounts(self, now: float, must: set[Operation], may: set[Operation]) -> None:
        for uid, pod in self.pods.items():
            for key, ability in pod.volumes.items():
                state = self.mounted.get((uid, key))
                if state == "mounted" and ((uid, key) not in self.remount or not pod.runs):
                    continue
                operation, required = (SET_UP, uid, key), pod.runs and state != "dropped"
                others = {other for other, name in self.touched if name == key and other != uid}
                if ability.one_pod and any(key in other.volumes for other in self.pods.values() if other is not pod):
                    required = False  # one of them gets it
                if ability.one_pod and others and (uid, key) not in self.mounted:  # volumes.md 5.5 (5)
                    if pod.runs and self._wait(operation, now, may=False) and operation not in self.running:
                        self._failed(operation, now, may_again=now)
                    if any(self.mounted.get((other, key)) == "mounted" for other in others):
                        operation = ("", "", "")
                    required = False
                if ability.device and self.devices.get(ability.device) != "mounted":
                    operation = (MOUNT_DEVICE, "", ability.device)
                    if ability.attachable and not self._is_attached(ability.device):
                        continue
                    required = required and (not ability.attachable or self._is_reported(ability.device))
                elif ability.device and self._device_runs(ability.device):
                    continue
                may.add(operation)
                if required:
                    must.add(operation)

    def _is_attached(self, device: str) -> bool:
        return device in self.node_in_use and device in self.attached  # volumes.md 3.3

    def _is_reported(self, device: str) -> bool:
        """Return whether the Node that was seen is as new as the first one with the report (volumes.md 3.3: a live
        read)."""
        return device in self.reported and self.node_version >= self.reported[device]

    def _device_runs(self, device: str) -> bool:
        return any(uid == "" and name == device for _, uid, name in self.running)

    def _device_unmounts(self, must: set[Operation], may: set[Operation]) -> None:
        if not self.listed or not self.all_found or self.of_unknown_device:
            return
        used = {ability.device for ability in self.touched.values()}
        used |= {ability.device for pod in self.pods.values() for ability in pod.volumes.values()}
        for device in self.touched_devices.keys() - used:
            may.add((UNMOUNT_DEVICE, "", device))
            if device in self.devices:
                must.add((UNMOUNT_DEVICE, "", device))

    def _desired(self, uid: str, key: str) -> Ability | None:
        pod = self.pods.get(uid)
        return pod.volumes.get(key) if pod is not None else None

    def _wait(self, operation: Operation, now: float, *, may: bool) -> bool:
        wait = self._waits.get(operation[1:])
        return wait is None or wait.name != operation[0] or now >= (wait.may_at if may else wait.must_at)

    def _failed(
        self, operation: Operation, now: float, *, may_again: float | None = None, answered: bool = True
    ) -> None:
        before = self._waits.get(operation[1:])
        same = before is not None and before.name == operation[0]
        failures = before.failures + 1 if before is not None and same else 1
        unanswered = not answered or (before is not None and same and before.unanswered)
        must_at = now + min(FIRST_WAIT_SECONDS * 2 ** (failures - 1), MAX_WAIT_SECONDS)
        earliest = now + FIRST_WAIT_SECONDS if unanswered else must_at  # it need not grow while no answer arrives
        may_at = earliest if may_again is None else may_again
        self._waits[operation[1:]] = _Wait(operation[0], failures, may_at, must_at, unanswered)

    def found(self, one: tuple[str, str], ability: Ability, *, complete: bool, device_known: bool) -> None:
        """A volume was found on disk (volumes.md 6); this process may have begun to set it up before."""
        if one in self.mounted:
            return
        if one not in self.touched and not device_known:
            self.of_unknown_device.add(one)
        self.touched[one], self.mounted[one] = ability, "found" if complete else "uncertain"
        self._first.discard(one)

    def may_retry(self, which: Callable[[str, str], bool]) -> None:
        """The cause of these failures may be gone: a new attempt need not wait."""
        for one, wait in self._waits.items():
            if which(*one):
                wait.may_at = 0.0

    def began(self, operation: Operation) -> None:
        """The operation has begun."""
        name, uid, key = operation
        self.running.add(operation)
        if name == SET_UP:
            if (uid, key) not in self.touched:
                self._first.add((uid, key))
            self.touched[uid, key] = self.pods[uid].volumes[key]
            self.of_unknown_device.discard((uid, key))  # the pod's claim names its device
            self.remount.discard((uid, key))
        elif name == MOUNT_DEVICE:
            self.touched_devices[key] = self.touched_devices.get(key, False) or key in self.attachable

    def abandoned(self, operation: Operation) -> None:
        """The operation has ended before it had any effect."""
        self.running.discard(operation)
        if operation[0] == SET_UP and operation[1:] in self.mounted:
            self.remount.add(operation[1:])
        elif operation[1:] in self._first and not self.touched[operation[1:]].device:
            self._forget(*operation[1:])  # nothing of it is there

    def succeeded(self, operation: Operation) -> None:
        """The operation has succeeded."""
        name, uid, key = operation
        self.running.discard(operation)
        self._first.discard((uid, key))
        self._released.discard((uid, key))
        self._waits.pop((uid, key), None)
        if name == SET_UP:
            self.mounted[uid, key] = "mounted"
        elif name == TEAR_DOWN:
            if self.touched[uid, key].device:  # another pod may have waited for this
                self.may_retry(lambda _, volume: volume == key)
                self._released |= {one[1:] for one in self.running if one[2] == key}
            self._forget(uid, key)
        elif name == MOUNT_DEVICE:
            self.devices[key] = "mounted"
            self.touched_devices[key] = key in self.attachable
        else:
            del self.touched_devices[key]
            self.devices.pop(key, None)

    def failed(self, operation: Operation, now: float, *, final: bool, answered: bool) -> None:
        """The operation has failed: a `final` error leaves nothing behind (volumes.md 2.8)."""
        name, uid, key = operation
        self.running.discard(operation)
        self._first.discard((uid, key))
        self._failed(operation, now, may_again=now if (uid, key) in self._released else None, answered=answered)
        self._released.discard((uid, key))
        if name == SET_UP and self.mounted.get((uid, key)) == "mounted":
            self.remount.add((uid, key))  # volumes.md 9.5, 14.6: it stays mounted
        elif name == SET_UP and not (final and (uid, key) not in self.mounted):
            self.mounted.setdefault((uid, key), "uncertain")
        elif name == TEAR_DOWN:
            self.mounted[uid, key] = "uncertain"
        elif (name == MOUNT_DEVICE and not final) or name == UNMOUNT_DEVICE:
            self.devices[key] = "uncertain"

    def _forget(self, uid: str, key: str) -> None:
        self.touched.pop((uid, key), None)
        self.mounted.pop((uid, key), None)
        self.remount.discard((uid, key))
        self.of_unknown_device.discard((uid, key))

    def drop_what_is_not_on_disk(self) -> None:
        """Forget volumes without a directory that no pod needs: nothing is torn down (volumes.md 8.2). If a pod of this
        UID comes back, they may be used as they are."""
        for one, ability in self.touched.items():
            if self.listed and not ability.on_disk and one in self.mounted and self._desired(*one) is None:
                self.mounted[one] = "dropped"

    def shown(self, uid: str) -> tuple[set[str], set[str]]:
        """Return the keys of the desired volumes that must be shown as mounted, and of those that may (volumes.md
        2.2.3)."""
        wanted = self.pods[uid].volumes if uid in self.pods else {}
        torn = {key for name, pod, key in self.running if name == TEAR_DOWN and pod == uid}
        must = {key for key in wanted if self.mounted.get((uid, key)) == "mounted"} - torn
        states = {key: self.mounted.get((uid, key)) for key in wanted}
        found = {
            key
            for key, state in states.items()
            if state == "dropped" or (state == "found" and wanted[key].serves_found)
        }
        return must, must | (found - torn)

    def in_use(self) -> tuple[set[str], set[str]]:
        """Return which names volumesInUse must have, and which it may (volumes.md 4.2, 4.3)."""
        must = {ability.device for pod in self.pods.values() for ability in pod.volumes.values() if ability.attachable}
        must |= {ability.device for one, ability in self.touched.items() if ability.attachable and one in self.mounted}
        must |= self.devices.keys() & self.attachable
        may = must | {ability.device for ability in self.touched.values() if "csi" in ability.plugin and ability.device}
        may |= {device for device, attachable in self.touched_devices.items() if attachable}
        if self.listed and self.all_found and not self.of_unknown_device:
            self.earlier.clear()
        return must | self.earlier, may | self.earlier
