"""Draws the history of a node's volumes: pods come and go, calls succeed, fail or hang, the process is killed, and the
API server and the controller answer late. The disk and the API server are simulated here.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from bus.messages.podsync import PodState, PodVolumes
from services.volume.core.files.payload import FailureKind
from services.volume.core.operations.outcome import FoundDevice, FoundVolume, Outcome
from services.volume.core.reconciler import Reconciler
from services.volume.core.specs.volume_spec import VolumeSpec
from services.volume.core.world.actual_state_of_world import ActualStateOfWorld
from services.volume.core.world.attachments import Attachments
from services.volume.core.world.desired_state_of_world import DesiredStateOfWorld
from tests.unit.volume.oracle.volumes_oracle import (
    MOUNT_DEVICE,
    SET_UP,
    TEAR_DOWN,
    UNMOUNT_DEVICE,
    Ability,
    Operation,
    Oracle,
    Pod,
)

CSI, LOCAL = "kubernetes.io/csi", "kubernetes.io/local-volume"
CONFIG_MAP, EMPTY_DIR, HOST_PATH = "kubernetes.io/configmap", "kubernetes.io/empty-dir", "kubernetes.io/host-path"


def draw_abilities(chance: random.Random) -> list[Ability]:
    """Return the volumes of a history."""
    volumes = [
        Ability(key="cfg", plugin=CONFIG_MAP, remounts=True, serves_found=True),
        Ability(key="tmp", plugin=EMPTY_DIR),
        Ability(key="host", plugin=HOST_PATH, on_disk=False),
        Ability(key=f"{CSI}/inline", plugin=CSI, remounts=chance.random() < 0.5),
        Ability(key=f"{LOCAL}/disk", plugin=LOCAL, device=f"{LOCAL}/disk", stages=True),
    ]
    for name in ("pv-1", "pv-2"):
        volumes.append(
            Ability(
                key=f"{CSI}/{name}",
                plugin=CSI,
                device=f"{CSI}/driver^{name}",
                attachable=chance.random() < 0.75,
                stages=chance.random() < 0.5,
                remounts=chance.random() < 0.3,
                one_pod=chance.random() < 0.2,
                block=chance.random() < 0.2,
            )
        )
    return chance.sample(volumes[:5], chance.choice([0, 1, 1, 2])) + volumes[5 : chance.choice([6, 6, 7])]


def _spec_of(ability: Ability) -> VolumeSpec:
    return VolumeSpec(
        plugin=ability.plugin,
        source=ability.key,
        key=ability.key if "/" in ability.key else "",
        volume_name=ability.device.removeprefix(f"{ability.plugin}/"),
        attachable=ability.attachable,
        block=ability.block,
        has_directory=ability.on_disk,
        requires_remount=ability.remounts,
        one_pod=ability.one_pod,
    )


@dataclass
class RandomNode:
    """One history, of which both the reconciler and the oracle get every event; what happened is in `trace`."""

    chance: random.Random
    uids: tuple[str, ...] = ("a", "b", "c")
    now: float = 100.0
    trace: list[str] = field(default_factory=list)
    # What is there, whatever any process knows of it.
    disk: dict[tuple[str, str], bool] = field(default_factory=dict)  # -> it is complete
    disk_devices: set[str] = field(default_factory=set)
    in_use: list[str] = field(default_factory=list)
    attached: list[str] = field(default_factory=list)
    version: int = 1
    states: dict[str, PodState] = field(default_factory=dict)  # as podsync has them
    started: dict[Operation, Any] = field(default_factory=dict)
    begun: set[Operation] = field(default_factory=set)  # of these, what performs
    hung: dict[Operation, Any] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    _process: int = 0
    # Answers of writes that are on their way: generation, volumesInUse, version, and what has been in use since.
    _answers: list[tuple[str, tuple[str, ...], int, set[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.abilities = {ability.key: ability for ability in draw_abilities(self.chance)}
        self.of_device = {ability.device: ability for ability in self.abilities.values() if ability.device}
        self.specs = {key: _spec_of(ability) for key, ability in self.abilities.items()}
        keys = list(self.abilities)
        uids = self.uids[: self.chance.choice([1, 2, 2, 3])]
        self.pods = {uid: self.chance.sample(keys, self.chance.randint(1, len(keys))) for uid in uids}
        self._start()

    # The process.

    def _start(self) -> None:
        """A new process finds what is on disk; podsync's list is not complete yet."""
        self._process += 1
        desired = DesiredStateOfWorld(lambda pod, name: self.specs[name])
        self.reconciler = Reconciler(desired, ActualStateOfWorld(), Attachments(f"t{self._process}"))
        attachable = {device for device, ability in self.of_device.items() if ability.attachable}
        self.oracle = Oracle(attachable=attachable, node_in_use=set(self.in_use), earlier=set(self.in_use))
        self.started, self.begun, self.hung, self.unread = {}, set(), {}, set()
        found = [FoundDevice(*self._parts(device), attachable=CSI in device) for device in sorted(self.disk_devices)]
        self.reconciler.add_devices_on_disk(found)
        for device in self.disk_devices:
            self.oracle.devices[device], self.oracle.touched_devices[device] = "uncertain", CSI in device
        for uid in sorted({uid for uid, _ in self.disk}):
            if self.chance.random() < 0.15:
                self.unread.add(uid)
            else:
                self._find(uid)
        self._found_all()

    def _parts(self, device: str) -> tuple[str, str]:
        plugin = self.of_device[device].plugin
        return plugin, device.removeprefix(f"{plugin}/")

    def _find(self, uid: str) -> None:
        found = []
        for (owner, key), complete in self.disk.items():
            ability = self.abilities[key]
            if owner != uid or not ability.on_disk:
                continue
            unknown = bool(ability.device) and self.chance.random() < 0.1
            found.append(
                FoundVolume(
                    key.rpartition("/")[2],
                    ability.plugin,
                    complete=complete and ability.serves_found,
                    host_path=f"/pods/{uid}/{key}",
                    unique_name="" if unknown else ability.device,
                    key=key if "/" in key else "",
                    device_unknown=unknown,
                    attachable=ability.plugin == CSI,
                )
            )
            self.oracle.found((uid, key), ability, complete=complete, device_known=not unknown)
        self.reconciler.add_volumes_on_disk(uid, found)

    def _found_all(self) -> None:
        self.reconciler.actual.unread, self.oracle.all_found = set(self.unread), not self.unread

    # What happens.

    def event(self) -> None:
        """Let one thing happen."""
        events = [
            (self._change_pod, 20), (self._list, 9), (self._perform, 30), (self._end, 50), (self._return, 4),
            (self._pass_time, 12), (self._write_status, 10), (self._control, 8), (self._see_node, 8), (self._talk, 12),
            (self._kill, 5), (self._read_again, 4), (self._refresh, 4), (self._lose_list, 2),
        ]  # fmt: skip
        [happens] = self.chance.choices([event for event, _ in events], [weight for _, weight in events])
        happens()

    def _change_pod(self, uid: str = "", state: PodState | None = None) -> None:
        """A pod comes, goes on, or is taken from podsync's list."""
        uid = uid or self.chance.choice(list(self.pods))
        following: dict[PodState | None, list[PodState | None]] = {
            None: [PodState.SYNC],
            PodState.SYNC: [PodState.TERMINATING, PodState.TERMINATING, PodState.TERMINATED],
            PodState.TERMINATING: [PodState.TERMINATED],
            PodState.TERMINATED: [PodState.FINISHED, PodState.FINISHED, PodState.SYNC],
            PodState.FINISHED: [None],
        }
        before = self.states.get(uid)
        state = state or self.chance.choice(following[before])
        self.trace.append(f"pod {uid} is {state}")
        if state is None:
            del self.states[uid]
        else:
            self.states[uid] = state
        if state is None and self.oracle.pods.pop(uid, None) is not None:
            self.reconciler.desired.withdraw(uid)
            if self.reconciler.desired.complete:
                self.oracle.deleted.add(uid)
        elif state is not None:
            self._admit(uid)

    def _admit(self, uid: str) -> None:
        state = self.states[uid]
        holds = state in (PodState.SYNC, PodState.TERMINATING)
        names = tuple(self.pods[uid]) if holds else ()
        self.reconciler.desired.admit(
            PodVolumes(uid=uid, name=uid, namespace="default", state=state, pod={}, volumes=names)
        )
        self.oracle.pods[uid] = Pod(runs=state is PodState.SYNC, volumes={key: self.abilities[key] for key in names})
        self.oracle.deleted.discard(uid)

    def _list(self) -> None:
        """podsync's list is complete and fresh."""
        for uid in sorted(self.states.keys() - self.oracle.pods.keys()):
            self._admit(uid)
        self.trace.append("the list is complete")
        self.reconciler.desired.set_freshness(complete=True, stale=False)
        self.oracle.listed = True

    def _lose_list(self) -> None:
        """podsync does not answer, or was restarted and does not list all of its pods yet."""
        complete = self.chance.random() < 0.5
        self.trace.append(f"the list is stale, complete: {complete}")
        self.reconciler.desired.set_freshness(complete=complete, stale=True)
        self.oracle.listed = False
        if not complete:
            self.oracle.deleted.clear()
            for uid in [uid for uid in self.states if uid in self.oracle.pods and self.chance.random() < 0.3]:
                self.reconciler.desired.withdraw(uid)
                del self.oracle.pods[uid]

    def _pass_time(self) -> None:
        self.now += self.chance.choice([0.1, 0.6, 1.1, 2.5, 30.0])
        self.trace.append(f"it is {self.now:.1f}")

    def _write_status(self) -> None:
        """A write of the Node's status; its answer arrives now or later."""
        published = self.reconciler.attachments
        if published.in_use is None:
            return
        self.version += 1
        self.in_use = sorted(published.in_use)
        self.oracle.node_in_use = set(self.in_use)
        self.trace.append(f"volumesInUse: {self.in_use}")
        self._answers.append((published.generation, tuple(self.in_use), self.version, set(self.in_use)))
        if self.chance.random() < 0.8:
            self._answer()

    def _answer(self) -> None:
        for generation, volumes, version, since in self._answers:
            self.trace.append(f"the write of {generation} is answered")
            self.reconciler.attachments.reported(generation, volumes, str(version))
            if generation.startswith(f"t{self._process}."):
                reported = self.oracle.reported
                self.oracle.reported = {name: reported.get(name, version) for name in since}
        self._answers.clear()

    def _control(self, *, always: bool = False) -> None:
        """The attach-detach controller attaches what pods need and detaches what is not in use."""
        needed = {key for uid in self.states for key in self.pods[uid]}
        for ability in self.of_device.values():
            if not ability.attachable or (not always and self.chance.random() < 0.2):
                continue
            attached, name = ability.device in self.attached, ability.device
            if ability.key in needed and not attached:
                self.attached.append(name)
            elif ability.key not in needed and attached and name not in self.in_use:
                self.attached.remove(name)
        self.version += 1
        self.trace.append(f"volumesAttached: {self.attached}")

    def _see_node(self) -> None:
        """The Node as it is arrives."""
        status = {"volumesInUse": self.in_use, "volumesAttached": [{"name": name} for name in self.attached]}
        self.reconciler.attachments.on_node({"metadata": {"resourceVersion": str(self.version)}, "status": status})
        self.oracle.attached, self.oracle.node_version = set(self.attached), self.version
        self.trace.append("the Node is seen")

    def _read_again(self) -> None:
        for uid in sorted(self.unread):
            self.trace.append(f"the directory of {uid} can be read")
            self._find(uid)
            self.oracle.deleted.discard(uid)  # nothing of it was known: it is an orphan
        self.unread.clear()
        self._found_all()

    def _talk(self) -> None:
        """The API server, the controller and status do all they have to do."""
        self._write_status()
        self._answer()
        self._control()
        self._see_node()

    def _refresh(self) -> None:
        self.trace.append("volumes are set up again")
        self.reconciler.refresh_all()
        for one, state in self.oracle.mounted.items():
            ability = self.oracle.touched[one]
            if ability.remounts and (state == "mounted" or (state == "found" and ability.serves_found)):
                self.oracle.remount.add(one)

    def _kill(self) -> None:
        """SIGKILL: of a call that is under way, the effect may be there or not."""
        self.trace.append("killed")
        for operation in [*self.begun, *self.hung]:
            self._act(operation, complete=self.chance.random() < 0.5)
        self._start()
        if self._answers and self.chance.random() < 0.5:
            self._answer()
        for uid in list(self.states):
            if self.chance.random() < 0.5:
                self._admit(uid)

    # Operations.

    def _perform(self) -> None:
        """An operation has its turn: it is performed if it is still due."""
        performed = {self._turn_of(one) for one in self.begun} - {""}
        waiting = [one for one in self.started if one not in self.begun and self._turn_of(one) not in performed]
        if not waiting:
            return
        one = self.chance.choice(waiting)
        if not self.reconciler.perform(self.started[one], self.now):
            self.trace.append(f"{one} is not performed now")
            self.reconciler.abandoned(self.started.pop(one))
            self.oracle.abandoned(one)
            return
        self.trace.append(f"{one} is performed")
        self.begun.add(one)
        self.oracle.performed.add(one)
        self.assert_safe(one)

    def _turn_of(self, operation: Operation) -> str:
        """Return the device on which the executor performs one mount at a time, "" = none."""
        name, uid, key = operation
        return "" if name == TEAR_DOWN else self.abilities[key].device if uid else key

    def _end(self, *, well: bool = False) -> None:
        """A call returns, or is given up."""
        if not self.begun:
            return
        one = self.chance.choice(sorted(self.begun))
        self.begun.discard(one)
        operation, draw = self.started.pop(one), 0.0 if well else self.chance.random()
        name, uid, key = one
        path = f"/devices/{key}" if uid == "" else f"/pods/{uid}/{key}"
        self.trace.append(f"{one} ends: {draw:.2f}")
        if draw < 0.75:
            self._act(one, complete=True)
            self.reconciler.done(operation, self.now, Outcome(host_path=path))
            self.oracle.succeeded(one)
            return
        final, hangs = draw < 0.82, draw > 0.95 and name == TEAR_DOWN
        kind = self.chance.choice([FailureKind.LASTING, FailureKind.UNANSWERED])
        if not final and not hangs and self.chance.random() < 0.5:
            self._act(one, complete=True)
        self.reconciler.done(operation, self.now, Outcome(error="no", kind=kind, under_way=hangs))
        self.oracle.failed(one, self.now, final=final, answered=kind is FailureKind.LASTING)
        if hangs:
            self.hung[one] = operation
            self.oracle.running.add(one)

    def _return(self) -> None:
        """A call that hung has returned."""
        for one in list(self.hung):
            self.trace.append(f"{one} returns")
            self._act(one, complete=True)
            self.reconciler.returned(self.hung.pop(one))
            self.oracle.running.discard(one)

    def _act(self, operation: Operation, *, complete: bool) -> None:
        """What the operation does to the disk; not `complete`: it is cut off."""
        name, uid, key = operation
        if name == SET_UP and self.abilities[key].on_disk:
            self.disk[uid, key] = complete or self.disk.get((uid, key), False)
        elif name == TEAR_DOWN and complete:
            self.disk.pop((uid, key), None)
        elif name == TEAR_DOWN:
            self.disk[uid, key] = False
        elif name == MOUNT_DEVICE and self.of_device[key].stages:
            self.disk_devices.add(key)
        elif name == UNMOUNT_DEVICE and complete:
            self.disk_devices.discard(key)

    def assert_safe(self, operation: Operation) -> None:
        """Called before an operation is performed."""
        raise NotImplementedError
