"""pods.md 6.8: mounts, in their order and with their ways."""

from typing import Any

from services.podsync.core.cri.container_mounts import MountedVolume
from tests.unit.podsync.cri.golden.case import HOSTS, Case, volume

END = {"container_path": "/dev/termination-log", "host_path": "/pods/U/containers/c/0a1b2c3d"}
VOLUMES = {"volumes": [{"name": "v", "emptyDir": {}}]}


def one(name: str, mount: dict[str, Any], wanted: dict[str, Any], of_volume: Any = None, **others: Any) -> Case:
    """One mount of volume v at /data, and what CRI's differs in."""
    given = {"volumes": volume("/on/host", **(of_volume or {})), **others.pop("given", {})}
    return Case(
        name=name,
        container={"volumeMounts": [{"name": "v", "mountPath": "/data", **mount}]},
        spec=VOLUMES,
        given=given,
        message={"mounts": [{"container_path": "/data", "host_path": "/on/host", **wanted}, HOSTS, END]},
        **others,
    )


IMAGE_VOLUME = {"volumes": [{"name": "v", "image": {"reference": "reg/data:1", "pullPolicy": "IfNotPresent"}}]}


def image(name: str, mount: dict[str, Any], wanted: dict[str, Any], **others: Any) -> Case:
    """One mount of an image, and what CRI's differs in."""
    pulled = {
        "image": "sha256:data",
        "user_specified_image": "reg/data:1",
        "annotations": {"kubernetes.io/config.source": "api"},
    }
    return Case(
        name=name,
        container={"volumeMounts": [{"name": "v", "mountPath": "/data", **mount}]},
        spec=IMAGE_VOLUME,
        given={"image_volumes": {"v": "sha256:data"}},
        message={"mounts": [{"container_path": "/data", "readonly": True, "image": pulled, **wanted}, HOSTS, END]},
        **others,
    )


RRO = {"node": {"recursive_read_only": True}}

CASES = (
    one("a volume", {}, {}),
    one("a mount that is read-only", {"readOnly": True}, {"readonly": True}),
    one("a volume that is read-only", {}, {"readonly": True}, {"readonly": True}),
    one("a path that is not absolute", {"mountPath": "data"}, {}),
    one("no propagation", {"mountPropagation": "None"}, {}),
    one("propagation from the host", {"mountPropagation": "HostToContainer"},
        {"propagation": "PROPAGATION_HOST_TO_CONTAINER"}),
    one("propagation both ways", {"mountPropagation": "Bidirectional"}, {"propagation": "PROPAGATION_BIDIRECTIONAL"}),
    one("read-only all the way down", {"readOnly": True, "recursiveReadOnly": "Enabled"},
        {"readonly": True, "recursive_read_only": True}, **RRO),
    one("read-only all the way down where that is possible: it is",
        {"readOnly": True, "recursiveReadOnly": "IfPossible"}, {"readonly": True, "recursive_read_only": True}, **RRO),
    one("read-only all the way down where that is possible: it is not",
        {"readOnly": True, "recursiveReadOnly": "IfPossible"}, {"readonly": True}),
    one("read-only, expressly not all the way down", {"readOnly": True, "recursiveReadOnly": "Disabled"},
        {"readonly": True}, **RRO),
    one("a path in the volume", {"subPath": "a/b"}, {"host_path": "/pods/U/volume-subpaths/v/c/0"},
        given={"subpaths": {0: "/pods/U/volume-subpaths/v/c/0"}}),
    one("a path in the volume by expression", {"subPathExpr": "$(KUBERNETES_SERVICE_HOST)"},
        {"host_path": "/pods/U/volume-subpaths/v/c/0"}, given={"subpaths": {0: "/pods/U/volume-subpaths/v/c/0"}}),
    one("no labels without SELinux", {}, {}, {"selinux_relabel": True}),
    Case(
        name="labels with SELinux, where the volume requests them",
        container={
            "volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "w", "mountPath": "/b", "readOnly": True}]
        },
        node={"selinux_enabled": True},
        given={"volumes": {**volume("/h/v", selinux_relabel=True), "w": MountedVolume(host_path="/h/w")}},
        message={
            "mounts": [
                {"container_path": "/a", "host_path": "/h/v", "selinux_relabel": True},
                {"container_path": "/b", "host_path": "/h/w", "readonly": True},
                {**HOSTS, "selinux_relabel": True},
                {**END, "selinux_relabel": True},
            ]
        },
    ),
    Case(
        name="mounts in the order of the spec, one volume twice",
        container={
            "volumeMounts": [
                {"name": "w", "mountPath": "/z"}, {"name": "v", "mountPath": "/a"}, {"name": "w", "mountPath": "/b"},
            ]
        },
        given={"volumes": {**volume("/h/v"), "w": MountedVolume(host_path="/h/w")}},
        message={
            "mounts": [
                {"container_path": "/z", "host_path": "/h/w"},
                {"container_path": "/a", "host_path": "/h/v"},
                {"container_path": "/b", "host_path": "/h/w"},
                HOSTS,
                END,
            ]
        },
    ),
    Case(
        name="a volume in the place of the hosts file",
        container={"volumeMounts": [{"name": "v", "mountPath": "/etc/hosts"}]},
        given={"volumes": volume("/h/v")},
        message={"mounts": [{"container_path": "/etc/hosts", "host_path": "/h/v"}, END]},
    ),
    Case(name="no hosts file before the pod has an address", given={"pod_ips": ()}, message={"mounts": [END]}),
    Case(
        name="the hosts file on the host's network, where the pod has no address of its own",
        spec={"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"},
        given={"pod_ips": ()},
        sandbox={"hostname": None, "linux:security_context:namespace_options:network": "NODE"},
        message={"linux:security_context:namespace_options:network": "NODE"},
    ),
    image("an image as a volume", {}, {}),
    image("an image as a volume is read-only even where it is not requested", {"readOnly": False}, {}),
    image("a directory of an image", {"subPath": "srv/data"}, {"image_sub_path": "srv/data"}),
    image("an image read-only all the way down", {"readOnly": True, "recursiveReadOnly": "Enabled"},
          {"recursive_read_only": True}, **RRO),
)  # fmt: skip
