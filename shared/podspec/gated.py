"""Says which fields of a pod the node runs it without, because their feature gate is off or they are not built: one
table, repeated in docs/limits.md.

Knows the pod and the feature gates; not what the runtime can do.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from shared.model.objects import Object
from shared.podspec.support import Effect, Unsupported
from shared.version import is_since

BIND_MOUNT_OPTIONS = "VolumeBindMountOptions"
MAX_NAMED_FIELDS = 5  # in one text
_UNBUILT = "the pod runs without it: it is not supported"
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


class GatedField(Struct, frozen=True, kw_only=True):
    """One kind of field. `gate`: its feature gate, "" = no release of RELEASES has the feature, or this agent does not;
    `paths`: those in the spec, with [] for an item of a list; `shown`: its path in a document;
    `plain`: the value that means the same as none."""

    gate: str = ""
    shown: str
    paths: tuple[str, ...]
    plain: str = ""
    rejected_since: str = ""  # the first of RELEASES that rejects the pod where the node lacks the feature, "" = none


def _of_containers(*paths: str) -> tuple[str, ...]:
    return tuple(f"{kind}[].{path}" for kind in _CONTAINERS for path in paths)


_FILES = ("configMap", "secret", "downwardAPI", "projected")
_SOURCES = ("configMap", "secret", "downwardAPI")
_SINGLE = ("serviceAccountToken", "clusterTrustBundle", "podCertificate")
GATED_FIELDS = (
    GatedField(
        gate=BIND_MOUNT_OPTIONS,
        shown="spec.containers[].volumeMounts[].bindMountOptions",
        paths=_of_containers("volumeMounts[].bindMountOptions"),
        rejected_since="1.37",
    ),
    GatedField(gate="EmptyDirVolumeMode", shown="spec.volumes[].emptyDir.mode", paths=("volumes[].emptyDir.mode",)),
    GatedField(
        gate="AtomicWriteVolumeUserFields",
        shown="user and defaultUser of the files of a volume",
        paths=(
            *(f"volumes[].{kind}.defaultUser" for kind in _FILES),
            *(f"volumes[].{kind}.items[].user" for kind in _SOURCES),
            *(f"volumes[].projected.sources[].{kind}.items[].user" for kind in _SOURCES),
            *(f"volumes[].projected.sources[].{kind}.user" for kind in _SINGLE),
        ),
    ),
    GatedField(shown="spec.restoreFrom", paths=("restoreFrom",)),
    GatedField(
        gate="ContainerStopSignals",
        shown="spec.containers[].lifecycle.stopSignal",
        paths=_of_containers("lifecycle.stopSignal"),
    ),
    GatedField(
        gate="H2CContainerProbe",
        shown="httpGet.protocol of a probe: HTTP2",
        paths=_of_containers(*(f"{probe}.httpGet.protocol" for probe in _PROBES)),
        plain="HTTP1",
    ),
    GatedField(
        gate="GRPCContainerProbeTLS",
        shown="grpc.mode of a probe: TLS",
        paths=_of_containers(*(f"{probe}.grpc.mode" for probe in _PROBES)),
        plain="Plaintext",
    ),
)


def unheeded_fields(pod: Object, gates: Mapping[str, bool], release: str) -> tuple[Unsupported, ...]:
    """Return the fields that the pod sets and that the node does not heed, in the order of the table: it runs without
    them, or is rejected. `gates`: the feature gates with their values; `release`: one of RELEASES."""
    found = []
    for row in GATED_FIELDS:
        if gates.get(row.gate):
            continue
        for path in row.paths:
            for field, value in _values(pod.get("spec"), "spec", path.split(".")):
                if value not in (None, "", [], row.plain):
                    found.append(_finding(row, field, release))
    return tuple(found)


def event_message(found: Iterable[Unsupported]) -> str:
    """Return the text of the one event about these fields, "" = there are none that the pod runs without."""
    found = [one for one in found if one.effect is Effect.WITHOUT]
    fields = [one.field for one in found]
    if not fields:
        return ""
    more = f" and {len(fields) - MAX_NAMED_FIELDS} more" if len(fields) > MAX_NAMED_FIELDS else ""
    unbuilt = any(one.consequence == _UNBUILT for one in found)
    why = "their feature gates are off, or they are not supported" if unbuilt else "their feature gates are off"
    return f"The pod runs without {', '.join(fields[:MAX_NAMED_FIELDS])}{more}: {why}"


def _finding(row: GatedField, field: str, release: str) -> Unsupported:
    if row.rejected_since and is_since(release, row.rejected_since):
        return Unsupported(field, Effect.REJECTED, f"needs the feature gate {row.gate}, which is off")
    off = f"the pod runs without it: the feature gate {row.gate} is off"
    return Unsupported(field, Effect.WITHOUT, off if row.gate else _UNBUILT)


def _values(value: Any, path: str, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield each value at the path below this one, with its own path."""
    if not names:
        yield path, value
        return
    name, is_list = names[0].removesuffix("[]"), names[0].endswith("[]")
    inner = value.get(name) if isinstance(value, dict) else None
    if not is_list:
        if inner is not None:
            yield from _values(inner, f"{path}.{name}", names[1:])
        return
    for index, item in enumerate(inner if isinstance(inner, list | tuple) else ()):
        yield from _values(item, f"{path}.{name}[{index}]", names[1:])
