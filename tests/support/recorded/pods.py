"""Reads what a Go kubelet sent for 39 pods so that it can be compared: numbers as numbers, orders that do not matter
made equal. Used by the tests of single messages and of complete pods.
"""

import base64
import json
from pathlib import Path
from typing import Any

from cri_api.v1 import api_pb2

from services.podsync.core.node.node_facts import NodeFacts
from shared.cri.interface import Message
from shared.model.objects import Object

RECORDINGS = Path(__file__).parents[2] / "recordings"
NAMES = sorted(path.stem for path in RECORDINGS.glob("*.json"))

# The machine of the recordings: cgroup v1, two huge page sizes; 24 GiB fits the oom_score_adj values seen.
NODE = NodeFacts(
    node_name="node1",
    node_ips=("10.88.0.1",),
    cluster_dns=("10.96.0.10",),
    cluster_domain="cluster.local",
    resolv_conf="nameserver 10.255.255.53\n",
    memory_capacity=24 << 30,
    page_sizes=("2MB", "1GB"),
    cgroup_v2=False,
    swap_controller=True,
)

IMAGE_USERS = {"run-as-nonroot-image": 1234}


def recording(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((RECORDINGS / f"{name}.json").read_text())
    return loaded


def calls(recorded: dict[str, Any], method: str) -> list[dict[str, Any]]:
    return [call["request"] for call in recorded["cri_until_delete"] if call["method"] == method]


def pod_of(recorded: dict[str, Any]) -> Object:
    """Return the pod as the API server gave it, with the annotations the kubelet added when it saw it."""
    pod: Object = {key: value for key, value in recorded["api_pod"].items() if key != "status"}
    for request in calls(recorded, "RunPodSandbox"):
        pod = {**pod, "metadata": {**pod["metadata"], "annotations": request["config"]["annotations"]}}
    return pod


def with_numbers(message: Any, descriptor: Any) -> Any:
    """Return a recorded message with 64-bit integers as numbers; the proxy's JSON wrote them as texts."""
    fields = descriptor.fields_by_name
    return {name: _number(value, fields[name]) for name, value in message.items()}


def _number(value: Any, field: Any) -> Any:
    if isinstance(value, list):
        return [_number(item, field) for item in value]
    if field.message_type is not None and not field.message_type.GetOptions().map_entry:
        return with_numbers(value, field.message_type)
    if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) and field.message_type is None:
        return int(value)
    return value


def recorded_sandbox(request: dict[str, Any]) -> Message:
    return options_in_any_order(with_numbers(request, api_pb2.PodSandboxConfig.DESCRIPTOR))


def options_in_any_order(message: Message) -> Message:
    """Return the message with the kubelet's resolver options sorted, because they are in no order."""
    dns = message["dns_config"]
    return {**message, "dns_config": {**dns, "options": sorted(dns.get("options", ()))}}


def recorded_container(request: dict[str, Any]) -> Message:
    envs = [{**env, "value": base64.b64decode(env.get("value", "")).decode()} for env in request.get("envs", ())]
    message: Message = with_numbers({**request, "envs": envs}, api_pb2.ContainerConfig.DESCRIPTOR)
    return in_any_order(message)


def in_any_order(message: Message) -> Message:
    """Return the message with the kubelet's variables sorted, because they are in no order."""
    return {**message, "envs": sorted(message.get("envs", ()), key=lambda env: env["key"])}
