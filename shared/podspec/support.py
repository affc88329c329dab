"""Says which pod fields this agent does not support, and what follows for the pod: one table, repeated in
docs/limits.md.

Knows the pod and what is passed about the node; not whether there is room on it, nor which objects exist.
"""

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from shared.model.objects import Object
from shared.podspec.containers import used_volumes
from shared.podspec.references import MAX_REFERENCES, referenced_objects
from shared.podspec.schema import join
from shared.podspec.volume_types import PROJECTIONS, TYPES, is_of_huge_pages

MAX_CONTAINERS = 500  # of all kinds together
MAX_VOLUMES = 1_000

VOLUMES = frozenset(name for name, kind in TYPES.items() if kind.mounted)
PERSISTENT_VOLUMES = frozenset(name for name, kind in TYPES.items() if kind.mounted_persistent)


class Effect(StrEnum):
    """What becomes of a pod with an unsupported field."""

    REJECTED = "rejected"  # admission fails it: its phase is Failed, and containers that run are stopped
    WAITS = "waits"  # it stays Pending and is tried again
    WITHOUT = "runs without it"  # the field counts for nothing: `gated` has the table


class Unsupported(Struct, frozen=True):
    """One field of one pod. `field`: its path, such as `spec.volumes[0].iscsi`; `consequence`: in one phrase."""

    field: str
    effect: Effect
    consequence: str


class Row(Struct, frozen=True):
    """One kind of field. `field`: its path without indices; `effect` and `consequence` as in `Unsupported`."""

    field: str
    effect: Effect
    consequence: str

    def at(self, field: str, why: str = "") -> Unsupported:
        """Return the finding for the field with this path, for this reason."""
        return Unsupported(field, self.effect, f"{why}; {self.consequence}" if why else self.consequence)


_REJECTED, _WAITS = Effect.REJECTED, Effect.WAITS
_UNMOUNTED = "the volume is not mounted: the pod waits with the event FailedMount"

VOLUME_TYPE = Row("spec.volumes[].<any other type>", _WAITS, _UNMOUNTED)
PERSISTENT_VOLUME = Row("PersistentVolume spec.<any other type>", _WAITS, _UNMOUNTED)
MEDIUM = Row("spec.volumes[].emptyDir.medium: any but Memory, HugePages and HugePages-<size>", _WAITS, _UNMOUNTED)
PROJECTION = Row("spec.volumes[].projected.sources[].<any other type>", _WAITS, _UNMOUNTED)
OPERATING_SYSTEM = Row("spec.os.name: windows", _REJECTED, "the pod is rejected with the reason PodOSNotSupported")
SIZE = Row(
    "more containers, volumes, Secrets or ConfigMaps than the table of pods permits",
    _REJECTED,
    "the pod is rejected with the reason PodFeatureUnsupported",
)
TABLE = (VOLUME_TYPE, PERSISTENT_VOLUME, MEDIUM, PROJECTION, OPERATING_SYSTEM, SIZE)

_ORDER = {effect: number for number, effect in enumerate(Effect)}


def unsupported(pod: Object) -> tuple[Unsupported, ...]:
    """Return what this agent does not support of the pod, the gravest first; () = everything is supported.

    `pod`: its known fields have the right types (`schema.type_errors`). What a claim stands for is not looked at.
    """
    if too_large := oversize(pod):
        return (Unsupported("spec", SIZE.effect, f"{SIZE.consequence} ({too_large})"),)
    found = [*_of_pod(pod), *_of_volumes(pod)]
    return tuple(sorted(found, key=lambda one: _ORDER[one.effect]))


def unsupported_persistent_volume(spec: Object) -> tuple[Unsupported, ...]:
    """Return what this agent does not support of the spec of a PersistentVolume; () = everything is supported."""
    if PERSISTENT_VOLUMES & spec.keys():
        return ()
    return tuple(PERSISTENT_VOLUME.at(f"spec.{name}", why_unmounted(name)) for name in unmounted_types(spec)[:1])


def unmounted_types(source: Object) -> list[str]:
    """Return the types of volume that the spec of a PersistentVolume names and that are not mounted, sorted."""
    return sorted(TYPES.keys() & source.keys() - PERSISTENT_VOLUMES)


def why_unmounted(name: str) -> str:
    """Return why no volume of this type is mounted, and what to use instead. `name`: its field in spec.volumes."""
    kind = TYPES.get(name)
    return f"the volume plugin {name} is not known" if kind is None else kind.why_unmounted(name)


def oversize(pod: Object) -> str:
    """Of what the pod has more than this agent takes on, with both numbers; "" = of nothing."""
    spec = pod.get("spec") or {}
    containers = sum(len(spec.get(field) or ()) for field in ("initContainers", "containers", "ephemeralContainers"))
    for count, most, what in (
        (containers, MAX_CONTAINERS, "containers"),
        (len(spec.get("volumes") or ()), MAX_VOLUMES, "volumes"),
        (len(referenced_objects(pod)), MAX_REFERENCES, "Secrets and ConfigMaps"),
    ):
        if count > most:
            return f"{count} {what} in one pod, at most {most} run here"
    return ""


def _of_pod(pod: Object) -> Iterator[Unsupported]:
    spec = pod.get("spec") or {}
    if (spec.get("os") or {}).get("name", "linux") != "linux":
        yield OPERATING_SYSTEM.at("spec.os.name")


def _of_volumes(pod: Object) -> Iterator[Unsupported]:
    used = used_volumes(pod)
    for index, volume in enumerate((pod.get("spec") or {}).get("volumes") or ()):
        if volume.get("name") not in used:
            continue  # it is not set up
        path = f"spec.volumes[{index}]"
        types = sorted(volume.keys() - {"name"})
        if types and not VOLUMES & volume.keys():
            yield VOLUME_TYPE.at(join(path, types[0]), why_unmounted(types[0]))
        medium = str((volume.get("emptyDir") or {}).get("medium") or "")
        if medium not in ("", "Memory") and not is_of_huge_pages(medium):
            yield MEDIUM.at(f"{path}.emptyDir.medium")
        for number, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
            if unknown := sorted(source.keys() - PROJECTIONS.keys()):
                yield PROJECTION.at(join(f"{path}.projected.sources[{number}]", unknown[0]))
