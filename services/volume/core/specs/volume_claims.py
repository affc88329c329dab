"""Finds the PersistentVolumeClaim and PersistentVolume of a pod's volume, with the kubelet's texts (volumes.md 2.5);
pure."""

from collections.abc import Callable

from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import FailureKind, FoundObject, Problem
from services.volume.core.specs.csi_translation import translated_volume
from services.volume.core.specs.in_tree_sources import TranslationError
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Unprocessed
from shared.model import objects
from shared.model.fields import dictionaries, dictionary, text
from shared.model.objects import Object
from shared.podspec.references import claim_name
from shared.podspec.resources import main_containers

_PROTECTION = "kubernetes.io/pvc-protection"  # a finalizer: the claim stays while pods use it
CLAIM, VOLUME, CSI_DRIVER = "PersistentVolumeClaim", "PersistentVolume", "CSIDriver"

Found = Callable[[ObjectKey], FoundObject | None]


class _UnusableError(Exception):
    """A claim cannot be used now. `quiet`: that is expected to end soon."""

    def __init__(self, text: str, *, quiet: bool = False) -> None:
        super().__init__(text)
        self.quiet = quiet


class _NotOwnedError(Exception):
    """The claim of a generic ephemeral volume belongs to another pod."""


def claim_key(pod: Object, volume: Object) -> ObjectKey | None:
    """Return the key of the claim that an entry of spec.volumes refers to; None = it refers to none."""
    if name := claim_name(pod, volume):
        return ObjectKey(CLAIM, objects.namespace(pod), name)
    return None


def resolve(pod: Object, volume: Object, found: Found) -> PersistentVolume | Unprocessed:
    """Return the PersistentVolume of a volume with a claim, or why there is none; Unprocessed("") while it is being
    read. `found` returns an object as it was read; None = not read yet, and from then on it is being read."""
    key = claim_key(pod, volume)
    assert key is not None
    try:
        claim = _read(key, found, "failed to fetch PVC from API server: ")
        if claim is None:
            return Unprocessed("")
        persistent = _volume_of(claim, found, pod if "ephemeral" in volume else None)
        if persistent is None:
            return Unprocessed("")
        translated = translated_volume(persistent)
    except _NotOwnedError as error:
        return Unprocessed(f"PVC {key.namespace}/{key.name} {error}")
    except TranslationError as error:
        return Unprocessed(f"failed to translate in-tree pv to CSI: {error}")
    except _UnusableError as error:
        return Unprocessed(f"error processing PVC {key.namespace}/{key.name}: {error}", quiet=error.quiet)
    read_only = dictionary(volume.get("persistentVolumeClaim")).get("readOnly") is True
    resolved = PersistentVolume(
        name=objects.name(persistent),
        spec=dictionary((translated or persistent).get("spec")),
        annotations=objects.annotations(persistent),
        claim=claim,
        read_only=read_only,
        volume=text(volume.get("name")),
        migrated=translated is not None,
    )
    return _checked_mode(pod, text(volume.get("name")), resolved)


def csi_driver(source: Object, found: Found) -> Object | Unprocessed | None:
    """Return the CSIDriver of a CSI volume, None = there is none; Unprocessed("") while it is being read. `source`: an
    entry of spec.volumes, or the spec of a PersistentVolume."""
    name = text(dictionary(source.get("csi")).get("driver"))
    if not name:
        return None
    answer = found(ObjectKey(CSI_DRIVER, "", name))
    if answer is None:
        return Unprocessed("")
    if answer.object is None and not answer.not_found:
        problem = answer.problem or Problem("not found")
        return Unprocessed(problem.text, quiet=problem.kind is not FailureKind.LASTING)
    return answer.object


def _read(key: ObjectKey, found: Found, prefix: str) -> Object | None:
    """Return the object; None = it is being read. Raises _UnusableError."""
    answer = found(key)
    if answer is None:
        return None
    if answer.object is None:
        problem = answer.problem
        quiet = problem is not None and problem.kind is not FailureKind.LASTING
        raise _UnusableError(prefix + (problem.text if problem is not None else "not found"), quiet=quiet)
    return answer.object


def _volume_of(claim: Object, found: Found, owner: Object | None) -> Object | None:
    """Return the PersistentVolume of the claim; None = it is being read. `owner`: the pod that must control the
    claim."""
    metadata, spec = dictionary(claim.get("metadata")), dictionary(claim.get("spec"))
    if metadata.get("deletionTimestamp") and _PROTECTION not in (metadata.get("finalizers") or ()):
        raise _UnusableError("PVC is being deleted")
    if dictionary(claim.get("status")).get("phase") != "Bound":
        raise _UnusableError("PVC is not bound")
    name = text(spec.get("volumeName"))
    if not name:
        raise _UnusableError("PVC has empty pvc.Spec.VolumeName")
    if owner is not None and not _is_controlled(metadata, owner):
        pod = f"{objects.namespace(owner)}/{objects.name(owner)}"
        raise _NotOwnedError(f"was not created for pod {pod} (pod is not owner)")
    volume = _read(ObjectKey(VOLUME, "", name), found, f"failed to fetch PV {name} from API server: ")
    if volume is None:
        return None
    reference = dictionary(volume.get("spec")).get("claimRef")
    if not isinstance(reference, dict):
        why = "but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
        raise _UnusableError(f"found PV object {name} {why}")
    if reference.get("uid") != objects.uid(claim):
        its, ours = text(reference.get("uid")), objects.uid(claim)
        raise _UnusableError(
            f"found PV object {name} but its pv.Spec.ClaimRef.UID {its} does not point to claim.UID {ours}"
        )
    return volume


def _is_controlled(metadata: Object, pod: Object) -> bool:
    owners = dictionaries(metadata.get("ownerReferences"))
    return any(owner.get("controller") is True and owner.get("uid") == objects.uid(pod) for owner in owners)


def _checked_mode(pod: Object, volume: str, resolved: PersistentVolume) -> PersistentVolume | Unprocessed:
    """Return the volume, or why it cannot be used: containers must use a block device by volumeDevices and a file
    system by volumeMounts."""
    field, mode = ("volumeMounts", "Block") if resolved.block else ("volumeDevices", "Filesystem")
    spec = dictionary(pod.get("spec"))
    for container in [*main_containers(pod), *dictionaries(spec.get("ephemeralContainers"))]:
        if any(use.get("name") == volume for use in dictionaries(container.get(field))):
            return Unprocessed(f"volume {volume} has volumeMode {mode}, but is specified in {field}")
    return resolved
