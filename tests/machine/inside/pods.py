"""The pods of the machine's node: static pods, one for each thing that is looked at. Pure."""

from typing import Any

from shared.model.objects import Object
from tools.oci_image import BUSYBOX_IMAGE

SURE = {"cpu": "200m", "memory": "64Mi"}
KEPT, LOST = "/kept/starts", "/lost/starts"  # on an emptyDir of the disk, and on one of memory
ONCE = "/var/lib/machine-once"  # of the host: a line for each time that pod `once` ran


def container(name: str, script: str, resources: Object | None = None, **further: Any) -> Object:
    """A busybox with a shell script."""
    return {"name": name, "image": BUSYBOX_IMAGE, "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", script], "resources": resources or {}, **further}  # fmt: skip


def pod(name: str, *containers: Object, **spec: Any) -> Object:
    """A pod of these containers; `spec` adds to its spec."""
    body = {"terminationGracePeriodSeconds": 1, "containers": list(containers), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": body}


_SLEEP = "exec sleep 1000000"
_LIMITS = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max"
_MOUNTS = [{"name": "kept", "mountPath": "/kept"}, {"name": "lost", "mountPath": "/lost"}]
_VOLUMES: list[Object] = [{"name": "kept", "emptyDir": {}}, {"name": "lost", "emptyDir": {"medium": "Memory"}}]

# These run for ever.
STEADY = {
    "sure": pod("sure", container("c", f"{_LIMITS}; {_SLEEP}", {"requests": SURE, "limits": SURE})),
    "web": pod(
        "web",
        container("c", f"echo started >> {KEPT}; echo started >> {LOST}; {_SLEEP}",
                  {"requests": {"cpu": "250m", "memory": "32Mi"}}, volumeMounts=_MOUNTS),
        initContainers=[container("prepare", "echo prepared >> /kept/prepared", volumeMounts=_MOUNTS)],
        volumes=_VOLUMES,
    ),
    "best": pod("best", container("c", _SLEEP)),
}  # fmt: skip
# These end, and are never to be run again.
ENDING = {
    "once": pod(
        "once",
        container("c", "echo ran >> /once/runs", volumeMounts=[{"name": "once", "mountPath": "/once"}]),
        restartPolicy="Never",
        volumes=[{"name": "once", "hostPath": {"path": ONCE, "type": "DirectoryOrCreate"}}],
    ),
    "eater": pod(
        "eater",
        container("c", "head -c 200000000 /dev/zero | tail", {"limits": {"memory": "24Mi"}}),
        restartPolicy="Never",
    ),
}
APART = {"apart": pod("apart", container("c", _SLEEP), hostUsers=False)}
SUDDEN = {"sudden": pod("sudden", container("c", _SLEEP))}
