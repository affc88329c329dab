"""What cannot be described, and the kubelet's words for it (pods.md 6.2-6.8, 12.1, 12.4): per container, the
text of CreateContainerConfigError; per sandbox, what follows "Failed to create pod sandbox: "."""

from typing import Any

from services.podsync.core.cri.container_mounts import MountedVolume
from services.podsync.core.cri.environment import EnvFile, ReferencedObject
from shared.cri.interface import ImageStatus
from tests.unit.podsync.cri.golden.case import Case, another, volume

WHO = '(pod: "web_ns1(U)", container: c)'
REFERENCES = {
    ("Secret", "s"): ReferencedObject({"data": {"a": "Yg=="}}),
    ("ConfigMap", "m"): ReferencedObject({"data": {"a": "b"}, "binaryData": {"k": "Yg=="}}),
    ("Secret", "gone"): ReferencedObject(None, not_found=True, error='secret "gone" not found'),
    ("ConfigMap", "gone"): ReferencedObject(None, not_found=True, error='configmap "gone" not found'),
    ("ConfigMap", "far"): ReferencedObject(None, error='object "ns1"/"far" not registered'),
}


def non_root(name: str, text: str, user: dict[str, Any], **context: Any) -> tuple[Case, str]:
    """A container that must not run as root, of an image with this user."""
    image = ImageStatus(id="sha256:abc", size=1, **user)
    context = {"runAsNonRoot": True, **context}
    return Case(name=name, container={"securityContext": context}, given={"image": image}), text


def variable(name: str, text: str, source: dict[str, Any], **given: Any) -> tuple[Case, str]:
    """A container with one variable from this source."""
    given = {"references": REFERENCES, **given}
    return Case(name=name, container={"env": [{"name": "E", "valueFrom": source}]}, given=given), text


def mount(name: str, text: str, wanted: dict[str, Any], volumes: Any = None, **others: Any) -> tuple[Case, str]:
    """A container with one mount of volume v."""
    given = {"volumes": volume() if volumes is None else volumes}
    container = {"volumeMounts": [{"name": "v", "mountPath": "/v", **wanted}]}
    return Case(name=name, container=container, given=given, **others), text


FILE = {("v", "a.env"): EnvFile({"A": "x", "EMPTY": ""})}


def file(key: str, *, optional: bool = False) -> dict[str, Any]:
    return {"fileKeyRef": {"volumeName": "v", "path": "a.env", "key": key, "optional": optional}}


CONTAINERS = (
    non_root("root by the spec", f"container's runAsUser breaks non-root policy {WHO}", {"uid": 7}, runAsUser=0),
    non_root("root by the image", f"container has runAsNonRoot and image will run as root {WHO}", {"uid": 0}),
    non_root("an image without a user", f"container has runAsNonRoot and image will run as root {WHO}", {}),
    non_root(
        "a user by name",
        "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root " + WHO,
        {"username": "www"},
    ),
    non_root(
        "a user that is too large",
        "container has runAsNonRoot and image has an invalid user id (2147483648). (Must be 1-(2147483647)): " + WHO,
        {"uid": 2147483648},
    ),
    (
        Case(name="not root, by the pod", spec={"securityContext": {"runAsNonRoot": True, "runAsUser": 0}}),
        f"container's runAsUser breaks non-root policy {WHO}",
    ),
    (
        Case(name="a pod that was never defaulted", spec={"enableServiceLinks": None}),
        "nil pod.spec.enableServiceLinks encountered, cannot construct envvars",
    ),
    variable("no Secret", 'secret "gone" not found', {"secretKeyRef": {"name": "gone", "key": "k"}}),
    variable("no ConfigMap", 'configmap "gone" not found', {"configMapKeyRef": {"name": "gone", "key": "k"}}),
    variable(
        "an object that is not watched yet",
        'object "ns1"/"far" not registered',
        {"configMapKeyRef": {"name": "far", "key": "k"}},
    ),
    variable(
        "an object that is not watched yet is no missing one, optional or not",
        'object "ns1"/"far" not registered',
        {"configMapKeyRef": {"name": "far", "key": "k", "optional": True}},
    ),
    variable(
        "no such key in the Secret",
        "couldn't find key k in Secret ns1/s",
        {"secretKeyRef": {"name": "s", "key": "k"}},
    ),
    variable(
        "binary data of a ConfigMap is none of its keys",
        "couldn't find key k in ConfigMap ns1/m",
        {"configMapKeyRef": {"name": "m", "key": "k"}},
    ),
    (
        Case(
            name="no ConfigMap for all of its keys",
            container={"envFrom": [{"configMapRef": {"name": "gone"}}]},
            given={"references": REFERENCES},
        ),
        'configmap "gone" not found',
    ),
    (
        Case(
            name="no Secret for all of its keys",
            container={"envFrom": [{"secretRef": {"name": "gone", "optional": False}}]},
            given={"references": REFERENCES},
        ),
        'secret "gone" not found',
    ),
    variable(
        "resources of a container the pod has not",
        "container x not found",
        {"resourceFieldRef": {"resource": "limits.cpu", "containerName": "x"}},
    ),
    variable(
        "a field there is none of", "unsupported fieldPath: status.phase", {"fieldRef": {"fieldPath": "status.phase"}}
    ),
    variable(
        "a resource there is none of",
        "unsupported container resource : limits.gpu",
        {"resourceFieldRef": {"resource": "limits.gpu"}},
    ),
    variable("no volume of the file", 'cannot find the volume "v" referenced by FileKeyRef', file("A")),
    variable(
        "a file that cannot be understood",
        "couldn't parse env file",
        file("A", optional=True),
        env_files={("v", "a.env"): EnvFile({}, error="couldn't parse env file")},
    ),
    variable(
        "no such file",
        "couldn't parse env file",
        file("A"),
        env_files={("v", "a.env"): EnvFile({}, missing=True)},
    ),
    variable(
        "no such key in the file",
        'environment variable key "B" not found in file "a.env"',
        file("B"),
        env_files=FILE,
    ),
    variable(
        "a key that the file sets to nothing",
        'environment variable key "EMPTY" not found in file "a.env"',
        file("EMPTY"),
        env_files=FILE,
    ),
    mount("no such volume", 'cannot find volume "v" to mount into container "c"', {}, {}),
    mount(
        "an image that was not pulled",
        'cannot find volume "v" to mount into container "c"',
        {},
        {},
        spec={"volumes": [{"name": "v", "image": {"reference": "x:1"}}]},
    ),
    mount("a device as a directory", 'cannot find volume "v" to mount into container "c"', {}, volume(block=True)),
    mount(
        "a path in the volume that is not ready",
        'failed to prepare subPath for volumeMount "v" of container "c"',
        {"subPath": "a"},
    ),
    (
        Case(
            name="an absolute path in an image",
            container={"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "/a"}]},
            spec={"volumes": [{"name": "v", "image": {"reference": "x:1"}}]},
            given={"image_volumes": {"v": "sha256:x"}},
        ),
        "error SubPath `/a` must not be an absolute path",
    ),
    mount(
        "read-only all the way down is more than the runtime can",
        'volume "v" requested recursive read-only mode, but it is not supported by the runtime',
        {"readOnly": True, "recursiveReadOnly": "Enabled"},
    ),
    (
        Case(
            name="a device that is not there",
            container={"volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]},
        ),
        'cannot find volume "v" to pass into container "c"',
    ),
    (
        Case(
            name="a directory as a device",
            container={"volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]},
            given={"volumes": {"v": MountedVolume(host_path="/v")}},
        ),
        'cannot find volume "v" to pass into container "c"',
    ),
    (
        Case(
            name="a device at no absolute path",
            container={"volumeDevices": [{"name": "v", "devicePath": "dev/x"}]},
            given={"volumes": volume(block=True)},
        ),
        "error DevicePath `dev/x` must be an absolute path",
    ),
    (
        Case(name="seccomp without a file", container={"securityContext": {"seccompProfile": {"type": "Localhost"}}}),
        "localhostProfile must be set if seccompProfile type is Localhost.",
    ),
    (
        Case(
            name="an ephemeral container for a missing target",
            spec={"ephemeralContainers": [another("debug", targetContainerName="x")]},
            of="debug",
        ),
        "unable to find target container x",
    ),
)

LONGEST = "h" * 32 + "." + "s" * 10 + ".ns1.svc.cluster.local"  # 65 characters

SANDBOXES = (
    (
        Case(name="a whole name that the kernel does not take", spec={
            "hostname": "h" * 32, "subdomain": "s" * 10, "setHostnameAsFQDN": True}),
        (
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {LONGEST} is too long "
            "(64 characters is the max, 65 characters requested)"
        ),
    ),
    (
        Case(name="users of its own, where the runtime has none to give", spec={"hostUsers": False}),
        "can't set `spec.hostUsers: false`, runtime does not support user namespaces",
    ),
    (
        Case(name="… where its handler has none", spec={"hostUsers": False}, node={"runtime_handler": "kata"}),
        'can\'t set `spec.hostUsers: false`, RuntimeClass handler "kata" does not support user namespaces',
    ),
    (
        Case(
            name="a resolv.conf that cannot be read, whether the pod needs it or not",
            spec={"dnsPolicy": "None"},
            node={"resolv_conf_error": "open /x: no such file or directory"},
        ),
        "open /x: no such file or directory",
    ),
    (
        Case(name="a resolv.conf with a nameserver that is none", node={"resolv_conf": "nameserver\n"}),
        "nameserver list is empty ",
    ),
)  # fmt: skip
