"""pods.md 6.2: the container's own fields and annotations."""

from services.podsync.core.cri.container_mounts import MountedVolume
from shared.cri.interface import ImageStatus
from tests.unit.podsync.cri.golden.case import HOSTS, NOTES, Case, volume


def hook(name: str, handler: dict[str, object], note: str) -> Case:
    """A preStop hook as its annotation."""
    return Case(
        name=name,
        container={"lifecycle": {"preStop": handler}},
        message={f"{NOTES}.container.preStopHandler": note},
    )


CASES = (
    Case(
        name="a container made again",
        given={"restart_count": 4},
        message={"metadata:attempt": 4, "log_path": "c/4.log", f"{NOTES}.container.restartCount": "4"},
    ),
    Case(
        name="the hash is of name and image",
        container={"name": "test_container", "image": "foo/image:v1"},
        of="test_container",
        message={
            "metadata:name": "test_container",
            "image:user_specified_image": "foo/image:v1",
            "labels:io.kubernetes.container.name": "test_container",
            f"{NOTES}.container.hash": "8e45cbd0",
            "log_path": "test_container/0.log",
            "mounts": [
                HOSTS,
                {"container_path": "/dev/termination-log", "host_path": "/pods/U/containers/test_container/0a1b2c3d"},
            ],
        },
    ),
    Case(
        name="the hash is of JSON as Go writes it",
        container={"image": "reg/a&b:1"},
        message={"image:user_specified_image": "reg/a&b:1", f"{NOTES}.container.hash": "7027167e"},
    ),
    Case(
        name="nothing but name and image is in the hash",
        container={"command": ["sh"], "imagePullPolicy": "Always"},
        message={"command": ["sh"]},
    ),
    Case(
        name="the image goes by what pulling returned",
        given={"image_ref": "sha256:def", "image": ImageStatus(id="sha256:def", size=1)},
        message={"image:image": "sha256:def"},
    ),
    Case(
        name="command and arguments are expanded with the final environment",
        container={
            "command": ["/bin/$(A)", "$(KUBERNETES_SERVICE_HOST)"],
            "args": ["$$(A)", "$(NONE)", "$A", "$$$(A)"],
            "env": [{"name": "A", "value": "x"}],
        },
        message={
            "command": ["/bin/x", "10.96.0.1"],
            "args": ["$(A)", "$(NONE)", "$A", "$x"],
            "envs:A": "x",
        },
    ),
    Case(name="an empty command leaves the image's own", container={"command": [], "args": []}),
    Case(name="working directory", container={"workingDir": "/srv"}, message={"working_dir": "/srv"}),
    Case(
        name="standard input, once, on a terminal",
        container={"stdin": True, "stdinOnce": True, "tty": True},
        message={"stdin": True, "stdin_once": True, "tty": True},
    ),
    Case(
        name="no file for a termination message where its path is empty",
        container={"terminationMessagePath": ""},
        message={"mounts": [HOSTS], f"{NOTES}.container.terminationMessagePath": ""},
    ),
    Case(
        name="a termination message elsewhere, or the end of the log",
        container={"terminationMessagePath": "/run/end", "terminationMessagePolicy": "FallbackToLogsOnError"},
        message={
            "mounts": [HOSTS, {"container_path": "/run/end", "host_path": "/pods/U/containers/c/0a1b2c3d"}],
            f"{NOTES}.container.terminationMessagePath": "/run/end",
            f"{NOTES}.container.terminationMessagePolicy": "FallbackToLogsOnError",
        },
    ),
    Case(
        name="a pod that is being deleted",
        metadata={"deletionGracePeriodSeconds": 0},
        message={f"{NOTES}.pod.deletionGracePeriod": "0"},
    ),
    Case(
        name="no grace period",
        spec={"terminationGracePeriodSeconds": None},
        message={f"{NOTES}.pod.terminationGracePeriod": None},
    ),
    Case(
        name="a grace period of nothing is one",
        spec={"terminationGracePeriodSeconds": 0},
        message={f"{NOTES}.pod.terminationGracePeriod": "0"},
    ),
    hook("a command before the stop", {"exec": {"command": ["sh", "-c", "a<b"]}},
         '{"exec":{"command":["sh","-c","a\\u003cb"]}}'),
    hook("a request before the stop", {"httpGet": {"scheme": "HTTP", "port": 80, "path": "/bye",
                                                  "httpHeaders": [{"value": "<1>", "name": "X"}]}},
         '{"httpGet":{"path":"/bye","port":80,"scheme":"HTTP","httpHeaders":[{"name":"X","value":"\\u003c1\\u003e"}]}}'),
    hook("a connection before the stop", {"tcpSocket": {"host": "h", "port": "db"}},
         '{"tcpSocket":{"port":"db","host":"h"}}'),
    hook("a pause before the stop", {"sleep": {"seconds": 5}}, '{"sleep":{"seconds":5}}'),
    Case(
        name="a postStart hook is not in the messages",
        container={"lifecycle": {"postStart": {"exec": {"command": ["true"]}}}},
    ),
    Case(
        name="probes are not the runtime's",
        container={"livenessProbe": {"exec": {"command": ["true"]}}, "readinessProbe": {"tcpSocket": {"port": 1}}},
    ),
    Case(
        name="a stop signal counts for nothing without its gate",
        container={"lifecycle": {"stopSignal": "SIGUSR1"}},
    ),
    Case(
        name="a stop signal, with its gate",
        container={"lifecycle": {"stopSignal": "SIGUSR1"}},
        node={"stop_signals": True},
        message={"stop_signal": "SIGUSR1"},
    ),
    Case(
        name="a block volume is a device",
        container={"volumeDevices": [{"name": "v", "devicePath": "/dev/xvda"}]},
        given={"volumes": volume("/pods/U/volumeDevices/csi/pv1", block=True)},
        message={
            "devices": [
                {"container_path": "/dev/xvda", "host_path": "/pods/U/volumeDevices/csi/pv1", "permissions": "mrw"}
            ]
        },
    ),
    Case(
        name="devices in the order of the spec, one read-only",
        container={
            "volumeDevices": [{"name": "w", "devicePath": "/dev/b"}, {"name": "v", "devicePath": "/dev/a"}]
        },
        given={
            "volumes": {
                **volume("/d/v", block=True),
                "w": MountedVolume(host_path="/d/w", block=True, readonly=True),
            }
        },
        message={
            "devices": [
                {"container_path": "/dev/b", "host_path": "/d/w", "permissions": "r"},
                {"container_path": "/dev/a", "host_path": "/d/v", "permissions": "mrw"},
            ]
        },
    ),
)  # fmt: skip
