"""A pod, and the message for one of its containers: what the tests of single fields start from."""

from typing import Any

from services.podsync.core.cri.container_config import container_config
from services.podsync.core.cri.container_inputs import ContainerInputs
from services.podsync.core.node.node_facts import NodeFacts
from shared.cri.interface import ImageStatus, Message
from shared.model.objects import Object
from shared.podspec.defaults import apply_defaults

NODE = NodeFacts(
    node_name="n",
    node_ips=("192.0.2.7", "2001:db8::7"),
    memory_capacity=16 << 30,
    page_sizes=("2MB", "1GB"),
    swap_controller=True,
    allocatable={"cpu": "2", "memory": "15Gi"},
)


def a_pod(container: dict[str, Any] | None = None, **spec: Any) -> Object:
    containers = [{"name": "c", "image": "i:1", **(container or {})}]
    pod = {"metadata": {"name": "web", "namespace": "ns1", "uid": "U"}, "spec": {"containers": containers, **spec}}
    apply_defaults(pod)
    return pod


def built(pod: Object, *, facts: NodeFacts = NODE, container: str = "c", **changes: Any) -> Message:
    every = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    arguments: dict[str, Any] = {
        "restart_count": 0,
        "image_ref": "sha256:1",
        "image": ImageStatus(id="sha256:1", size=1),
        "pod_ips": ("10.0.0.5",),
        "volumes": {},
        "subpaths": {},
        "etc_hosts_path": "/r/etc-hosts",
        "termination_path": "/r/t",
        "service_env": {},
        "references": {},
    }
    spec = next(c for c in every if c["name"] == container)
    return container_config(pod, spec, ContainerInputs(**{**arguments, **changes}), facts=facts)


def env_of(message: Message) -> dict[str, str]:
    return {env["key"]: env.get("value", "") for env in message.get("envs", ())}


def security_of(message: Message) -> Message:
    context: Message = message["linux"]["security_context"]
    return context


def resources_of(message: Message) -> Message:
    resources: Message = message["linux"]["resources"]
    return resources
