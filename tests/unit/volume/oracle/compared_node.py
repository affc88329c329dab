"""Compares what volume's reconciler begins, shows and publishes with the oracle, and with what holds at any time."""

from typing import Any

from bus.messages.podsync import PodState
from bus.messages.volume import VolumeState
from services.volume.core.operations import operations as product
from services.volume.core.operations.outcome import Outcome
from tests.unit.volume.oracle.random_node import RandomNode
from tests.unit.volume.oracle.volumes_oracle import MOUNT_DEVICE, SET_UP, TEAR_DOWN, UNMOUNT_DEVICE, Operation

_NAMES: dict[type, str] = {
    product.MountVolume: SET_UP,
    product.UnmountVolume: TEAR_DOWN,
    product.MountDevice: MOUNT_DEVICE,
    product.UnmountDevice: UNMOUNT_DEVICE,
}


class ComparedNode(RandomNode):
    """Each difference is an AssertionError that names what was expected."""

    def reconcile(self) -> None:
        """Let the reconciler look at everything, and compare what it begins and shows."""
        self._publish_in_use()
        self.oracle.drop_what_is_not_on_disk()
        must, may = self.oracle.due(self.now)
        got: list[product.Operation] = [*self.reconciler.device_operations(self.now)]
        for uid in self.reconciler.pods():
            got += self.reconciler.operations(uid, self.now)
        began: dict[Operation, product.Operation] = {}
        for operation in got:
            if (name := _NAMES.get(type(operation))) is not None:
                began[name, operation.uid, operation.volume] = operation
            else:
                self._directory(operation)
        unmounts = [one for one in began if one[0] == TEAR_DOWN]
        excluded = {one for one in must for other in unmounts if self.oracle.excludes(other, one)}
        assert must - excluded <= began.keys(), f"does not begin {must - excluded - began.keys()}"
        assert began.keys() <= may, f"begins {began.keys() - may}"
        for one, operation in began.items():
            self.trace.append(f"{one} begins")
            self.started[one] = operation
            self.oracle.began(one)
            if isinstance(operation, product.MountVolume) and (device := self.abilities[operation.volume].device):
                assert operation.device_path == f"/devices/{device}"
        self._publish_in_use()
        self._compare_shown()

    def _publish_in_use(self) -> None:
        self.reconciler.volumes_in_use()
        published = self.reconciler.attachments.in_use or frozenset()
        for *_, since in self._answers:
            since &= published
        self.oracle.reported = {name: at for name, at in self.oracle.reported.items() if name in published}

    def _directory(self, operation: Any) -> None:
        uid = operation.uid
        if isinstance(operation, product.RemovePodDirectory):
            left = [key for owner, key in self.oracle.touched if owner == uid and self.abilities[key].on_disk]
            assert not left and self.oracle.listed, f"removes the directory of {uid}, which has {left}"
            assert self.states.get(uid) in (None, PodState.FINISHED), f"removes the directory of {uid}"
            self.oracle.may_retry(lambda pod, _: pod == uid)
        self.reconciler.done(operation, self.now, Outcome())

    def _compare_shown(self) -> None:
        for uid in {*self.pods, *(uid for uid, _ in self.oracle.mounted)}:
            shown = self.reconciler.view(uid)
            volumes = shown.volumes if shown is not None else {}
            got = {name for name, volume in volumes.items() if volume.state is VolumeState.MOUNTED}
            must, may = self.oracle.shown(uid)
            assert must <= got <= may, f"{uid} shows {got}, expected {must} to {may}"
            for key in got:
                assert volumes[key].host_path == f"/pods/{uid}/{key}"
            there = {key for owner, key in self.oracle.mounted if owner == uid and self.abilities[key].on_disk}
            assert there <= volumes.keys(), f"{uid} does not show {there - volumes.keys()}, of which something is there"
        published = self.reconciler.attachments.in_use
        names = set(self.in_use) if published is None else published
        must, may = self.oracle.in_use()
        if published is None:
            must &= names
        assert must <= names <= may | (set(self.in_use) if published is None else set()), (
            f"in use: {sorted(names)}, expected {sorted(must)} to {sorted(may)}"
        )
        for device in self.disk_devices | {self.abilities[key].device for _, key in self.disk}:
            if device and self.of_device[device].attachable:
                assert device in self.in_use, f"volumesInUse lacks {device}, which is mounted"

    def assert_safe(self, operation: Operation) -> None:
        """What holds at each call, whatever the order was (volumes.md 4 "Invariant", 5.7)."""
        name, uid, key = operation
        device = self.abilities[key].device if uid else key
        devices = {
            one: self.abilities[one[2]].device if one[1] else one[2] for one in {*self.begun, *self.hung} - {operation}
        }
        on_device = [one for one, other in devices.items() if device and other == device]
        if name in (SET_UP, MOUNT_DEVICE) and device and self.of_device[device].attachable:
            assert device in self.in_use and device in self.attached, f"{operation} before it is reported and attached"
        if name == SET_UP and device and self.of_device[device].stages:
            assert device in self.disk_devices, f"{operation} without its device"
        if name == UNMOUNT_DEVICE:
            users = [one for one in self.disk if self.abilities[one[1]].device == device]
            assert not users and not on_device, f"{operation} below {users}, {on_device}"
        if name in (SET_UP, MOUNT_DEVICE):
            known = [one for one in on_device if one[1:] not in self.oracle.of_unknown_device]
            assert not known, f"{operation} beside {known}"
            before = [one for one in self.oracle.waiting if self.oracle.excludes(one, operation)]
            assert not before, f"{operation} though {before} waited first"
        if name == TEAR_DOWN:
            mounts = [
                one for one in on_device if one[0] != TEAR_DOWN and (uid, key) not in self.oracle.of_unknown_device
            ]
            assert not mounts, f"{operation} beside {mounts}"
        if name == SET_UP and self.abilities[key].one_pod:
            others = [owner for owner, volume in self.disk if volume == key and owner != uid]
            assert not others, f"{operation} while {others} have it"  # volumes.md 5.5 (5)

    def settle(self) -> None:
        """Everything succeeds from now on: what pods need is mounted in the end, and nothing else."""
        self._read_again()
        self._list()
        for uid in sorted(self.states):
            if self.states[uid] is PodState.TERMINATED:
                self._change_pod(uid, PodState.FINISHED)
        self._catch_up()
        self._assert_settled()

    def warm(self) -> None:
        """Begin with pods that run."""
        for uid in self.pods:
            if self.chance.random() < 0.8:
                self._change_pod(uid, PodState.SYNC)
        self._list()
        self._catch_up()

    def _catch_up(self) -> None:
        quiet = 0
        while quiet < 3:
            self._return()
            self.now += 130.0
            self.reconcile()
            self._write_status()
            self._answer()
            self._control(always=True)
            self._see_node()
            quiet = 0 if self.started else quiet + 1
            while self.started:
                self._perform()
                self._end(well=True)
            self.reconcile()

    def _assert_settled(self) -> None:
        taken: dict[str, int] = {}
        for uid, state in self.states.items():
            for key in self.pods[uid] if state is PodState.SYNC else ():
                if self.abilities[key].one_pod:
                    taken[key] = taken.get(key, 0) + ((uid, key) in self.disk)
                    continue
                shown = self.reconciler.view(uid)
                is_mounted = shown is not None and shown.volumes[key].state is VolumeState.MOUNTED
                there = self.disk.get((uid, key)) or not self.abilities[key].on_disk
                assert is_mounted and there, f"{key} of {uid} is not mounted in the end"
        assert all(count == 1 for key, count in taken.items() if not self._ends(key)), f"of one pod: {taken}"
        needed = {
            (uid, key)
            for uid, state in self.states.items()
            if state in (PodState.SYNC, PodState.TERMINATING)
            for key in self.pods[uid]
        }
        assert self.disk.keys() <= needed, f"not unmounted in the end: {self.disk.keys() - needed}"
        if self.oracle.of_unknown_device:
            return  # a pod that ends has a volume that may be on any device
        devices = {self.abilities[key].device for _, key in needed}
        assert self.disk_devices <= devices, f"not unmounted in the end: {self.disk_devices - devices}"
        in_use = {self.abilities[key].device for _, key in needed if self.abilities[key].attachable}
        more = {self.abilities[key].device for _, key in needed if self._ends(key)}
        assert in_use <= set(self.in_use) <= in_use | more, f"in use in the end: {self.in_use}, expected {in_use}"

    def _ends(self, key: str) -> bool:
        """Return whether a pod that ends may still have the volume."""
        return any(state is PodState.TERMINATING and key in self.pods[uid] for uid, state in self.states.items())
