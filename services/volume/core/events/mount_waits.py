"""Decides which pods have waited so long for their volumes that an Event names what is missing (volumes.md 2.2).

Pure. Times are seconds of one monotonic clock.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from bus.messages.volume import MountedVolume, MountedVolumes, VolumeState
from services.volume.core.specs.volume_spec import Refused, VolumeSpec
from services.volume.core.world.desired_state_of_world import DesiredVolumes

TIMEOUT_SECONDS = 123.0


@dataclass
class MountWaits:
    """The moments since which pods wait for a volume, by pod UID."""

    _since: dict[str, float] = field(default_factory=dict)

    def message(
        self,
        uid: str,
        pod: DesiredVolumes | None,
        seen: MountedVolumes | None,
        now: float,
        unattached: Iterable[str] = (),
    ) -> str:
        """Return the text of an Event that is due, "" = none. Call it in every turn: the next Event of a pod that still
        waits is due after the same time again. `unattached`: names of volumes that are not attached to the node."""
        missing = _missing(pod, seen.volumes if seen is not None else {})
        if pod is None or not missing:
            self._since.pop(uid, None)
            return ""
        if now - self._since.setdefault(uid, now) < TIMEOUT_SECONDS:
            return ""
        self._since[uid] = now
        return self.text(pod, seen, unattached)

    @staticmethod
    def text(pod: DesiredVolumes, seen: MountedVolumes | None, unattached: Iterable[str] = ()) -> str:
        """Return the kubelet's text about a pod that waits for its volumes."""
        return f"Unable to attach or mount volumes: {MountWaits.missing(pod, seen, unattached)}"

    @staticmethod
    def missing(pod: DesiredVolumes, seen: MountedVolumes | None, unattached: Iterable[str] = ()) -> str:
        """Return the kubelet's text that names the volumes a pod waits for."""
        missing = _missing(pod, seen.volumes if seen is not None else {})
        specs = pod.volumes.items()
        refused = {name: spec.reason for name, spec in specs if isinstance(spec, Refused) and spec.reason}
        why = "; ".join(dict.fromkeys(refused.values())) or "context deadline exceeded"
        migrated = [spec.served_by for name, spec in specs if isinstance(spec, VolumeSpec) and spec.migrated]
        if drivers := sorted({driver for driver in migrated if driver}):
            needed = "volumes of in-tree plugins need their CSI drivers in the cluster and on this node"
            why += f" ({needed}: {', '.join(drivers)})"
        return (
            f"unmounted volumes={_listed(missing)}, unattached volumes={_listed(unattached)}, "
            f"failed to process volumes={_listed(refused)}: {why}"
        )

    def keep(self, uids: Container[str]) -> None:
        """Forget all pods but these."""
        self._since = {uid: since for uid, since in self._since.items() if uid in uids}

    def next_at(self, now: float) -> float | None:
        """Return when the next Event is due; None when no pod waits."""
        return min(
            (since + TIMEOUT_SECONDS for since in self._since.values() if since + TIMEOUT_SECONDS > now), default=None
        )


def _missing(pod: DesiredVolumes | None, seen: Mapping[str, MountedVolume]) -> list[str]:
    if pod is None or not pod.mounting or pod.finished:
        return []
    return [name for name in pod.volumes if name not in seen or seen[name].state is not VolumeState.MOUNTED]


def _listed(names: Iterable[str]) -> str:
    """Return the sorted names as Go prints a list of strings."""
    return f"[{' '.join(sorted(names))}]"
