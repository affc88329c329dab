"""Translates volumes of in-tree plugins into volumes of the CSI drivers that serve them (volumes.md 15); pure.

A PersistentVolume keeps its name. A volume of a pod becomes a PersistentVolume that is named after its storage, so that
all pods of the node with this storage share one staged volume. What each plugin translates: `in_tree_sources`.
"""

from services.volume.core.specs.in_tree_sources import SOURCES, InTree, InTreeSource, TranslationError
from services.volume.core.specs.in_tree_topology import translated_affinity
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Refused
from shared.model import objects
from shared.model.fields import dictionary, text
from shared.model.objects import Object

MAX_NAME_BYTES = 255  # of a directory
_FAILED = "failed to translate in-tree pv to CSI: "


def translated_volume(volume: Object) -> Object | None:
    """Return the PersistentVolume as one of a CSI driver; None = no in-tree plugin that a driver serves has it. Raises
    TranslationError."""
    spec = dictionary(volume.get("spec"))
    row = _row_of(spec)
    if row is None:
        return None
    given = InTree(
        source=dictionary(spec.get(row.field)),
        name=objects.name(volume),
        namespace=text(dictionary(spec.get("claimRef")).get("namespace")),
        labels={key: text(value) for key, value in objects.labels(volume).items()},
        annotations={key: text(value) for key, value in objects.annotations(volume).items()},
    )
    after = {key: value for key, value in spec.items() if key != row.field}
    after["csi"] = {"driver": row.driver, **_source(row, given)}
    if row.topology and (affinity := translated_affinity(spec.get("nodeAffinity"), given.labels, row.topology)):
        after["nodeAffinity"] = affinity
    if row.access_modes is not None and isinstance(modes := spec.get("accessModes"), list):
        after["accessModes"] = row.access_modes(modes)
    return {**volume, "spec": after}


def translated_inline(pod: Object, volume: Object, *, alone: bool = False) -> PersistentVolume | Refused | None:
    """Return the volume of spec.volumes as a PersistentVolume of a CSI driver, or why it can never be mounted; None =
    no in-tree plugin that a driver serves has it. `alone`: there is no API server."""
    row = _row_of(volume)
    if row is None:
        return None
    if alone:
        return Refused(
            f"the volume plugin {row.plugin} is served by the CSI driver {row.driver}, which needs a cluster"
        )
    given = InTree(
        source=dictionary(volume.get(row.field)),
        name=text(volume.get("name")),
        namespace=objects.namespace(pod),
        inline=True,
    )
    try:
        source = _source(row, given)
    except TranslationError as error:
        return Refused(f"{_FAILED}{error}")
    name = (source["volumeHandle"] if row.is_named_by_handle else f"{row.driver}-{row.identity(given)}").replace(
        "/", "~"
    )
    if name in ("", ".", "..") or not name.isprintable() or len(name.encode()) > MAX_NAME_BYTES:
        return Refused(f"{_FAILED}{name[:MAX_NAME_BYTES]!a} cannot be the name of a directory")
    spec = {
        "csi": {"driver": row.driver, **source},
        "accessModes": [row.inline_access_mode(given)],
        "volumeMode": "Filesystem",
    }
    return PersistentVolume(
        name=name, spec=spec, annotations={}, claim={}, volume=text(volume.get("name")), migrated=True
    )


def _row_of(source: Object) -> InTreeSource | None:
    return next((row for row in SOURCES if isinstance(source.get(row.field), dict)), None)


def _source(row: InTreeSource, given: InTree) -> Object:
    """Return the fields of spec.csi besides the driver."""
    return {"volumeHandle": row.handle(given), **row.others(given)}
