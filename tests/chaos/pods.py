"""The pods of the kill matrix: those that stay through all cells, and those a cell creates and deletes. Pure."""

from shared.model.objects import Object
from tests.support.agents.agent import NODE
from tests.support.agents.world import busybox_pod

SETTINGS = "settings"  # the ConfigMap all of them may mount
SESSION_POD = "steady-plain"
STATIC = "steady-static"

_SLEEP = ("sh", "-c", 'trap "exit 0" TERM; sleep 1000000 & wait')  # ends at the first SIGTERM
_SERVE = ("sh", "-c", 'trap "exit 0" TERM; mkdir -p /www; echo well > /www/index.html; httpd -f -p 8080 -h /www & wait')


def sleeper(name: str, *, files: bool = False) -> Object:
    """A pod that does nothing, with or without a ConfigMap mounted."""
    pod = _bound(busybox_pod(name, *_SLEEP))
    return _with_files(pod) if files else pod


def without_volumes(pod: Object) -> Object:
    """The pod, and the API server is to give it no token either."""
    return {**pod, "spec": {**pod["spec"], "automountServiceAccountToken": False}}


def steady() -> list[Object]:
    """Pods that are Ready before the first cell and must be the same after the last."""
    probed = _bound(busybox_pod("steady-probed", *_SERVE))
    look = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 5}
    probed["spec"]["containers"][0] |= {"readinessProbe": look, "livenessProbe": look}
    asked = _bound(busybox_pod("steady-asked", *_SLEEP))
    asked["spec"]["containers"][0]["readinessProbe"] = {
        "exec": {"command": ["true"]}, "periodSeconds": 2, "timeoutSeconds": 5,
    }  # fmt: skip
    double = _bound(busybox_pod("steady-double", *_SLEEP))
    double["spec"]["containers"].append({**double["spec"]["containers"][0], "name": "second"})
    return [sleeper(SESSION_POD), probed, asked, double, sleeper("steady-files", files=True)]


def static() -> Object:
    """The manifest of the static pod."""
    return busybox_pod(STATIC, *_SLEEP)


def settings(version: int) -> Object:
    """The ConfigMap; each version has other content and another set of keys."""
    data = {"colour": str(version), f"key-{version % 2}": "x"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": SETTINGS}, "data": data}


def container_names(pod: Object) -> tuple[str, ...]:
    """Of a pod, as the runtime will name them."""
    return tuple(str(container["name"]) for container in pod["spec"]["containers"])


def _bound(pod: Object) -> Object:
    pod["spec"]["nodeName"] = NODE
    return pod


def _with_files(pod: Object) -> Object:
    pod["spec"]["volumes"] = [{"name": "settings", "configMap": {"name": SETTINGS}}, {"name": "room", "emptyDir": {}}]
    pod["spec"]["containers"][0]["volumeMounts"] = [
        {"name": "settings", "mountPath": "/etc/settings"},
        {"name": "room", "mountPath": "/room"},
    ]
    return pod
