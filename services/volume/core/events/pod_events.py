"""Decides the Events of a pod about volumes without an operation: those that are refused, and those that the pod has
waited for too long; pure."""

from collections.abc import Container
from dataclasses import dataclass, field

from bus.messages.event import KubeEvent
from bus.messages.volume import MountedVolumes
from services.volume.core.events.mount_events import warning
from services.volume.core.events.mount_waits import MountWaits
from services.volume.core.mounting.view import message
from services.volume.core.specs.volume_spec import ATTACH, Refused, Unprocessed, VolumeSpec
from services.volume.core.world.attachments import Attachments
from services.volume.core.world.desired_state_of_world import DesiredVolumes


@dataclass
class PodEvents:
    """The refusals that were reported and the moments since which volumes are missing, by pod UID."""

    _reported: dict[str, dict[str, str]] = field(default_factory=dict)  # pod UID -> volume -> reason
    _failed: dict[str, list[KubeEvent]] = field(default_factory=dict)  # pod UID -> of mounts that were refused
    _waits: MountWaits = field(default_factory=MountWaits)
    timed_out: set[str] = field(default_factory=set)  # UIDs of pods with a wait that was too long; taken by the reader

    def refused(self, pod: DesiredVolumes, text: str, refusal: Refused) -> None:
        """Note an event of a mount that was refused for now."""
        reason = "FailedAttachVolume" if refusal.step == ATTACH else "FailedMount"
        self._failed.setdefault(pod.uid, []).append(warning(pod, text, reason))

    def due(
        self, uid: str, pod: DesiredVolumes | None, seen: MountedVolumes | None, attachments: Attachments, now: float
    ) -> list[KubeEvent]:
        """Return the events that are due. Call it in every turn."""
        failed, reported = self._failed.pop(uid, []), self._reported.pop(uid, {})
        wanted = pod.volumes if pod is not None else {}
        refused = {name: spec for name, spec in wanted.items() if isinstance(spec, Refused) and not _is_quiet(spec)}
        if refused:
            self._reported[uid] = {name: spec.reason for name, spec in refused.items()}
        new = {name: spec for name, spec in refused.items() if reported.get(name) != spec.reason}
        messages = [
            message(name, spec.reason, step=spec.step)
            for name, spec in new.items()
            if not isinstance(spec, Unprocessed)
        ]
        unattached = unattached_volumes(pod, attachments)
        if any(isinstance(spec, Unprocessed) for spec in new.values()) and pod is not None:
            messages.append(self._waits.text(pod, seen, unattached))
        if waited := self._waits.message(uid, pod, seen, now, unattached):
            messages.append(waited)
            self.timed_out.add(uid)
        return [*failed, *(warning(pod, text) for text in messages)] if pod is not None else []

    def keep(self, uids: Container[str]) -> None:
        """Forget all pods but these."""
        self._waits.keep(uids)
        self._reported = {uid: names for uid, names in self._reported.items() if uid in uids}
        self._failed = {uid: events for uid, events in self._failed.items() if uid in uids}

    def next_at(self, now: float) -> float | None:
        """Return when the next event is due; None when no pod waits."""
        return self._waits.next_at(now)


def _is_quiet(spec: Refused) -> bool:
    return isinstance(spec, Unprocessed) and (spec.quiet or not spec.reason)


def unattached_volumes(pod: DesiredVolumes | None, attachments: Attachments) -> list[str]:
    """Return the names of the volumes that wait for the attach-detach controller."""
    return [
        name
        for name, spec in (pod.volumes.items() if pod is not None else ())
        if isinstance(spec, VolumeSpec) and spec.attachable and not attachments.may_mount(spec.unique_name)
    ]
