"""One container's message, beyond what the recordings and the golden cases show."""

import base64
import json
from typing import Any

from services.podsync.core.cri.environment import ReferencedObject
from services.podsync.core.pod.allocation import allocation_of
from tests.unit.podsync.cri.container_messages import a_pod, built, env_of, resources_of, security_of


def test_fields_without_a_value_are_absent_wherever_they_are() -> None:
    def zeros(value: Any, path: str = "") -> list[str]:
        if isinstance(value, dict):
            return [bad for key, item in value.items() for bad in zeros(item, f"{path}.{key}")]
        if isinstance(value, list):
            return [bad for item in value for bad in zeros(item, f"{path}[]")] if value else [path]
        return [] if value else [path]

    container = {"env": [{"name": "E"}], "securityContext": {"capabilities": {}, "runAsUser": 0}, "stdin": False}
    message = built(a_pod(container))
    assert zeros(message) == []
    assert message["envs"] == [{"key": "E"}]
    assert security_of(message)["capabilities"] == {}
    assert json.loads(json.dumps(message)) == message


def test_a_container_is_given_what_is_allocated_to_it_and_not_what_its_spec_lists() -> None:
    def limited(cpu: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}

    environment = [{"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}}]
    listed, allocated = (a_pod({**limited(cpu), "env": environment}) for cpu in ("2", "500m"))
    message = built(listed, allocation=allocation_of(allocated))
    assert message == built(allocated)
    assert resources_of(message)["cpu_quota"] == 50_000 and env_of(message) == {"CPU": "500"}


def test_bytes_of_a_secret_that_are_no_text_are_replaced_so_that_the_container_can_start() -> None:
    """CRI takes texts, and a runtime writes the environment as JSON."""
    secret = ReferencedObject({"data": {"k": base64.b64encode(b"\xff\xc3\xa9").decode()}})
    env = [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    message = built(a_pod({"env": env}), references={("Secret", "s"): secret})
    assert env_of(message)["S"].encode() == b"\xef\xbf\xbd\xc3\xa9"
