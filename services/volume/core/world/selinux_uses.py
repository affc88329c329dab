"""Counts SELinux labels of volumes whose drivers take labels, and those that contradict each other (volumes.md 12.5);
pure."""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field

from services.volume.core.specs.volume_spec import Unprocessed, VolumeSpec
from services.volume.core.world.desired_state_of_world import DesiredVolumes


class SELinuxCounts(Struct, frozen=True):
    """Has numbers by whether a second label is an error, and by the labels of the metrics: access mode, or plugin and
    access mode."""

    admitted: Counter[tuple[str, str]] = field(default_factory=Counter)  # volumes that pods use with a label
    unlabelled: Counter[tuple[bool, str]] = field(default_factory=Counter)  # containers without a possible label
    pod_mismatches: Counter[tuple[bool, str]] = field(default_factory=Counter)  # volumes of pods
    volume_mismatches: Counter[tuple[bool, str, str]] = field(default_factory=Counter)  # labels beside the first one


def count_selinux_uses(pods: Iterable[DesiredVolumes]) -> SELinuxCounts:
    """Return the numbers for the pods that have not finished."""
    counts = SELinuxCounts()
    labels: dict[str, set[str]] = {}
    named: dict[str, tuple[bool, str, str]] = {}
    for spec in (spec for pod in pods if not pod.finished for spec in pod.volumes.values()):
        use = spec.selinux if isinstance(spec, VolumeSpec | Unprocessed) else None
        if use is None:
            continue
        if use.unlabelled:
            counts.unlabelled[use.enforced, use.access_mode] += use.unlabelled
        if len(use.labels) > 1:
            counts.pod_mismatches[use.enforced, use.access_mode] += 1
        elif isinstance(spec, VolumeSpec):
            labels.setdefault(spec.unique_name, set()).add("".join(use.labels))
            named[spec.unique_name] = (use.enforced, f"{spec.plugin}/{spec.served_by}", use.access_mode)
    for name, found in labels.items():
        enforced, plugin, mode = named[name]
        if any(found):
            counts.admitted[plugin, mode] += 1
        if len(found) > 1:
            counts.volume_mismatches[enforced, plugin, mode] += len(found) - 1
    return counts
