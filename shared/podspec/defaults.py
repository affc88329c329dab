"""The API's defaults for a pod, as the API server would fill them in (pods.md 1.2.1).

Changes only what is absent. Expects the types `schema` checks. What admission plugins add (priority, service account,
tolerations) is no default and stays out.
"""

from typing import Any

from shared.model.objects import Object
from shared.model.quantity import QuantityError, parse_quantity
from shared.podspec.image_name import default_pull_policy
from shared.podspec.resources import container_totals, is_pod_level, main_containers, parse_resources, written
from shared.podspec.volume_types import TYPES, VOLUME_TYPES

FILE_MODE = 0o644
_WITH_MODE = {name for name, kind in TYPES.items() if "defaultMode" in kind.fields}
TERMINATION_MESSAGE_PATH = "/dev/termination-log"


def apply_defaults(pod: Object) -> None:
    """Fills in the pod's spec, in place. Doing it twice changes nothing more."""
    spec: dict[str, Any] = pod.setdefault("spec", {})
    _default(
        spec,
        restartPolicy="Always",
        dnsPolicy="ClusterFirst",
        terminationGracePeriodSeconds=30,
        securityContext={},
        schedulerName="default-scheduler",
        enableServiceLinks=True,
    )
    if spec.get("hostNetwork"):
        for port in (port for container in main_containers(pod) for port in container.get("ports") or ()):
            if not port.get("hostPort") and port.get("containerPort"):
                port["hostPort"] = port["containerPort"]
    for container in main_containers(pod):
        _default_container(container)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    _round_amounts(spec, "overhead")
    if "resources" in spec:
        _default_pod_level(pod, spec["resources"])


def _default(fields: dict[str, Any], **values: Any) -> None:
    """Sets absent fields; "" and absent are the same to Kubernetes."""
    for key, value in values.items():
        if fields.get(key) in (None, ""):
            fields[key] = value


def _default_numbers(fields: dict[str, Any], **values: int) -> None:
    """Sets numbers that are absent; 0 and absent are the same to Kubernetes where a number is no pointer."""
    for key, value in values.items():
        fields[key] = fields.get(key) or value


def _default_container(container: dict[str, Any]) -> None:
    _default(
        container,
        imagePullPolicy=default_pull_policy(container.get("image") or ""),
        terminationMessagePath=TERMINATION_MESSAGE_PATH,
        terminationMessagePolicy="File",
        resources={},
    )
    for port in container.get("ports") or ():
        _default(port, protocol="TCP")
    for variable in container.get("env") or ():
        _default_references(variable.get("valueFrom") or {})
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _default_numbers(
                container[name], timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3
            )
            _default_handler(container[name])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict):
            _default_handler(hook)
    resources = container["resources"]
    for kind in ("limits", "requests"):
        _round_amounts(resources, kind)
    if resources.get("limits"):
        requests = resources.setdefault("requests", {})
        for name, amount in written(parse_resources(resources["limits"])).items():
            requests.setdefault(name, amount)


def _default_handler(handler: dict[str, Any]) -> None:
    if "httpGet" in handler:
        _default(handler["httpGet"], path="/", scheme="HTTP")
    if "grpc" in handler:
        handler["grpc"].setdefault("service", "")


def _default_references(source: dict[str, Any]) -> None:
    """fieldRef and resourceFieldRef, of a variable or of a file in a downward volume."""
    if "fieldRef" in source:
        _default(source["fieldRef"], apiVersion="v1")
    if "resourceFieldRef" in source:
        _default(source["resourceFieldRef"], divisor="0")


def _default_volume(volume: dict[str, Any]) -> None:
    if not any(kind in volume for kind in VOLUME_TYPES):
        volume["emptyDir"] = {}
    for kind in volume.keys() & _WITH_MODE:
        volume[kind].setdefault("defaultMode", FILE_MODE)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    if "image" in volume:
        _default(volume["image"], pullPolicy=default_pull_policy(volume["image"].get("reference") or ""))
    if "emptyDir" in volume and "sizeLimit" in volume["emptyDir"]:
        volume["emptyDir"]["sizeLimit"] = _canonical(volume["emptyDir"]["sizeLimit"])
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _default_references(item)
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "serviceAccountToken" in source:
            _default(source["serviceAccountToken"], expirationSeconds=3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _default_references(item)


def _default_pod_level(pod: Object, resources: dict[str, Any]) -> None:
    """Pod-level requests not given are what the containers ask for together, else the pod-level limits."""
    for kind in ("limits", "requests"):
        _round_amounts(resources, kind)
    asked = written(container_totals(pod, "requests"))
    for name, amount in {**(resources.get("limits") or {}), **asked}.items():
        if is_pod_level(name):
            resources.setdefault("requests", {}).setdefault(name, amount)


def _round_amounts(holder: dict[str, Any], kind: str) -> None:
    """Quantities in canonical form, rounded up to thousandths; what is no quantity stays, for validation to name."""
    if kind in holder:
        parsed = parse_resources(holder[kind])
        holder[kind] = {
            name: str(parsed[name].rounded_to_milli()) if name in parsed else value
            for name, value in holder[kind].items()
        }


def _canonical(value: Any) -> Any:
    try:
        return str(parse_quantity(value))
    except QuantityError:
        return value
