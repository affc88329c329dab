"""The kinds of pods that the soak makes and what each is to become. Pure: objects in, objects out."""

from enum import StrEnum

from shared.model.objects import Object
from tests.support.agents.agent import NODE
from tools.oci_image import BUSYBOX_IMAGE

OTHER_IMAGE = BUSYBOX_IMAGE.replace(":1", ":2")  # the same content: what an update of the image changes to
SETTINGS, SEALED = "soak-settings", "soak-sealed"  # the ConfigMap and the Secret that pods mount
PORT = 8080

_ENDS_AT_ONCE = "trap 'exit 0' TERM; sleep 1000000 & wait"
_IGNORES_TERM = "trap '' TERM; while true; do sleep 1; done"
_TALKS = "trap 'exit 0' TERM; n=0; while true; do n=$((n+1)); echo line $n of many; sleep 0.05; done"
_SERVES = f"mkdir /www; echo fine > /www/index.html; touch /tmp/ready; exec httpd -f -p {PORT} -h /www"


class Shape(StrEnum):
    """What a pod is made of."""

    PLAIN = "plain"
    STUBBORN = "stubborn"  # ends only by KILL
    TALKER = "talker"
    VOLUMES = "volumes"
    PROBED = "probed"
    SEVERAL = "several"
    CRASHING = "crashing"
    FINISHING = "finishing"
    FAILING = "failing"
    OVERDUE = "overdue"


class Outcome(StrEnum):
    """What a pod has become once the node is at rest."""

    READY = "Ready"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CRASHING = "crash looping"


OUTCOMES = {
    Shape.CRASHING: Outcome.CRASHING,
    Shape.FINISHING: Outcome.SUCCEEDED,
    Shape.FAILING: Outcome.FAILED,
    Shape.OVERDUE: Outcome.FAILED,
}
LASTING = tuple(shape for shape in Shape if shape not in OUTCOMES)


def outcome_of(shape: Shape) -> Outcome:
    """What becomes of a pod without faults."""
    return OUTCOMES.get(shape, Outcome.READY)


def pod_of(shape: Shape, name: str) -> Object:
    """The pod, bound to the node."""
    spec: Object = {"nodeName": NODE, "terminationGracePeriodSeconds": 5, "containers": [_container("main")]}
    main = spec["containers"][0]
    match shape:
        case Shape.PLAIN:
            pass
        case Shape.STUBBORN:
            main["command"] = _shell(_IGNORES_TERM)
        case Shape.TALKER:
            main["command"] = _shell(_TALKS)
        case Shape.VOLUMES:
            _give_volumes(spec)
        case Shape.PROBED:
            _give_probes(main)
        case Shape.SEVERAL:
            spec["containers"] += [_container("beside"), _container("talker", _TALKS)]
        case Shape.CRASHING:
            main["command"] = _shell("echo about to crash; sleep 0.3; exit 1")
        case Shape.FINISHING:
            main["command"] = _shell("echo done; exit 0")
            spec["restartPolicy"] = "Never"
        case Shape.FAILING:
            main["command"] = _shell("echo sorry; exit 3")
            spec["restartPolicy"] = "Never"
        case Shape.OVERDUE:
            spec["activeDeadlineSeconds"] = 3
    metadata = {"name": name, "namespace": "default", "labels": {"soak": shape.value}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def settings(number: int) -> Object:
    """The ConfigMap in its n-th version."""
    data = {"colour": f"colour-{number}", **({"extra": str(number)} if number % 2 else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": SETTINGS}, "data": data}


def sealed(number: int) -> Object:
    """The Secret in its n-th version."""
    data = {"word": f"word-{number}"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SEALED}, "stringData": data}


def _shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def _container(name: str, script: str = _ENDS_AT_ONCE) -> Object:
    command = _shell(script)
    return {"name": name, "image": BUSYBOX_IMAGE, "imagePullPolicy": "IfNotPresent", "command": command}


def _give_volumes(spec: Object) -> None:
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}
    labels = {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}
    spec["volumes"] = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "settings", "configMap": {"name": SETTINGS}},
        {"name": "sealed", "secret": {"secretName": SEALED}},
        {"name": "together", "projected": {"sources": [token, labels, {"configMap": {"name": SETTINGS}}]}},
    ]
    main = spec["containers"][0]
    main["volumeMounts"] = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in spec["volumes"]]
    main["command"] = _shell(f"date > /scratch/began; cat /sealed/word > /scratch/word; {_ENDS_AT_ONCE}")
    main["env"] = [{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": SEALED, "key": "word"}}}]


def _give_probes(main: Object) -> None:
    slow = {"timeoutSeconds": 10, "failureThreshold": 6, "periodSeconds": 1}  # a busy machine is no failing probe
    main["command"] = _shell(_SERVES)
    main["startupProbe"] = {"tcpSocket": {"port": PORT}, **slow, "failureThreshold": 60}
    main["livenessProbe"] = {"httpGet": {"path": "/index.html", "port": PORT}, **slow}
    main["readinessProbe"] = {"exec": {"command": ["cat", "/tmp/ready"]}, **slow}
