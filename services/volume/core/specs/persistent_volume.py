"""Reads what plugins need of a PersistentVolume that a pod uses through its claim; pure."""

from collections.abc import Mapping

from msgspec import Struct, field

from services.volume.core.specs.volume_spec import Node
from shared.model.fields import dictionaries, dictionary, text
from shared.model.objects import Object
from shared.model.quantity import QuantityError, parse_quantity
from shared.podspec.node_selector import matches_terms

_MOUNT_OPTIONS = "volume.beta.kubernetes.io/mount-options"  # an annotation that takes precedence over the field
_GROUP = "pv.beta.kubernetes.io/gid"


class PersistentVolume(Struct, frozen=True, kw_only=True):
    """A PersistentVolume that a pod uses through its claim.

    `name`: the spec name, after which its directories are named; `spec`, `annotations`: as the API server has them;
    `claim`: the PersistentVolumeClaim, {} = it is a translated volume of spec.volumes; `read_only`: as the pod's volume
    has it; `volume`: its name in the pod; `node`: the node on which it is used; `migrated`: it was translated from an
    in-tree plugin.
    """

    name: str
    spec: Object
    annotations: Mapping[str, object]
    claim: Object
    read_only: bool = False
    volume: str = ""
    node: Node = field(default_factory=Node)
    migrated: bool = False

    @property
    def access_modes(self) -> tuple[str, ...]:
        """Return spec.accessModes, such as ReadWriteOnce."""
        listed = self.spec.get("accessModes")
        return tuple(text(mode) for mode in listed) if isinstance(listed, list) else ()

    @property
    def one_pod(self) -> bool:
        """Return whether only one pod may use the volume."""
        return self.access_modes == ("ReadWriteOncePod",)

    @property
    def block(self) -> bool:
        """Return whether pods get the volume as a block device."""
        return self.spec.get("volumeMode") == "Block"

    @property
    def capacity(self) -> int:
        """Return the bytes of spec.capacity, 0 = not known."""
        return _bytes(dictionary(self.spec.get("capacity")).get("storage"))

    @property
    def claim_capacity(self) -> int:
        """Return the bytes of the claim's status.capacity: what its file system was expanded to; 0 = not known."""
        status = dictionary(self.claim.get("status"))
        return _bytes(dictionary(status.get("capacity")).get("storage"))

    @property
    def mount_options(self) -> tuple[str, ...]:
        """Return the mount options: those of the annotation where there is one, else those of the field."""
        annotated = text(self.annotations.get(_MOUNT_OPTIONS))
        if annotated:
            return tuple(option for option in annotated.split(",") if option)
        listed = self.spec.get("mountOptions")
        return tuple(text(option) for option in listed if option) if isinstance(listed, list) else ()

    @property
    def group(self) -> int | None:
        """Return the supplemental group ID of the pods that use the volume; None = there is none, or it is no
        number."""
        annotated = text(self.annotations.get(_GROUP))
        return int(annotated) if annotated.isascii() and annotated.isdecimal() and len(annotated) < 11 else None

    def is_for(self, node: Node) -> bool:
        """Return whether the volume's node affinity permits this node, whose labels must be known."""
        required = dictionary(dictionary(self.spec.get("nodeAffinity")).get("required"))
        terms = required.get("nodeSelectorTerms")
        return not required or matches_terms(dictionaries(terms), node.name, node.labels or {})

    @property
    def has_affinity(self) -> bool:
        """Return whether the volume may be used on some nodes only."""
        return bool(dictionary(self.spec.get("nodeAffinity")).get("required"))


def _bytes(quantity: object) -> int:
    try:
        return max(0, parse_quantity(quantity).base()) if isinstance(quantity, str | int) else 0
    except QuantityError:
        return 0
