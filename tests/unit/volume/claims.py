"""Claims, PersistentVolumes and a pod that uses them, for tests of volume."""

from typing import Any

from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.payload import FoundObject

Object = dict[str, Any]
CLAIM, PV = "PersistentVolumeClaim/shop/data", "PersistentVolume//pv-1"


def claim(*, phase: str = "Bound", volume: str = "pv-1", uid: str = "c1", **metadata: Any) -> Object:
    """The claim `data` of the namespace `shop`."""
    return {
        "metadata": {"name": "data", "namespace": "shop", "uid": uid, "resourceVersion": "1", **metadata},
        "spec": {"volumeName": volume},
        "status": {"phase": phase, "capacity": {"storage": "1Gi"}},
    }


def volume(*, claim_uid: str | None = "c1", **spec: Any) -> Object:
    """The PersistentVolume `pv-1`; a hostPath where `spec` names no source."""
    source = (
        spec if spec.keys() & {"local", "nfs", "hostPath", "csi", "disk"} else {"hostPath": {"path": "/srv"}, **spec}
    )
    reference = {} if claim_uid is None else {"claimRef": {"namespace": "shop", "name": "data", "uid": claim_uid}}
    return {
        "metadata": {"name": "pv-1", "resourceVersion": "2"},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, **reference, **source},
    }


def pod(entry: Object | None = None, *, devices: bool = False) -> Object:
    """A pod with one volume `v`, which has the claim `data` unless `entry` gives another source."""
    use = {"volumeDevices": [{"name": "v"}]} if devices else {"volumeMounts": [{"name": "v"}]}
    source = entry or {"persistentVolumeClaim": {"claimName": "data"}}
    return {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": {"containers": [{"name": "c", **use}], "volumes": [{"name": "v", **source}]},
    }


def key(text: str) -> ObjectKey:
    """The key of `<kind>/<namespace>/<name>`."""
    return ObjectKey(*text.split("/", 2))


def found(**objects: Object) -> dict[ObjectKey, FoundObject]:
    """What was read: `claim` and `volume`."""
    keys = {"claim": key(CLAIM), "volume": key(PV)}
    return {keys[name]: FoundObject(value) for name, value in objects.items()}
