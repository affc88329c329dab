"""A container whose environment or arguments no kernel takes is refused in one line, before anything large is built."""

import base64
from time import process_time
from typing import Any

import pytest

from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.cri.container_mounts import wanted_subpaths
from services.podsync.core.cri.environment import ReferencedObject
from tests.unit.podsync.cri.container_messages import a_pod, built, env_of

HALF = "x" * 65_000
FULL = "x" * 131_000


def refused(container: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(ContainerConfigError) as caught:
        built(a_pod(container), **changes)
    assert caught.value.reason == "CreateContainerConfigError"
    assert len(caught.value.message) < 500
    assert "\n" not in caught.value.message
    return caught.value.message


def literals(**values: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def test_variables_that_double_each_other_stop_at_the_first_that_is_too_long() -> None:
    env = literals(A0="x") + [{"name": f"A{n}", "value": f"$(A{n - 1})$(A{n - 1})"} for n in range(1, 60)]
    before = process_time()
    assert refused({"env": env}) == (
        'environment variable "A17" is too long: the kernel takes 131071 bytes of NAME=value'
    )
    assert process_time() - before < 1.0


def test_a_variable_may_fill_what_the_kernel_takes_with_its_name() -> None:
    longest = "v" * (131_071 - len("NAME="))
    assert env_of(built(a_pod({"env": literals(NAME=longest)})))["NAME"] == longest
    assert '"NAME"' in refused({"env": literals(NAME=longest + "v")})
    assert '"NAME"' in refused({"env": literals(HALF=HALF, NAME="$(HALF)$(HALF)$(HALF)")})


def test_the_environment_ends_where_the_kernel_has_no_more_room() -> None:
    fits = [{"name": f"A{n}", "value": FULL} for n in range(16)]
    assert len(env_of(built(a_pod({"env": fits})))) == 16
    message = refused({"env": [*fits, {"name": "LAST", "value": FULL}]})
    assert message == (
        'environment variable "LAST" does not fit: the kernel takes 2097152 bytes of environment, command and args '
        "together"
    )


def test_a_variable_written_again_and_again_is_counted_each_time() -> None:
    assert '"A"' in refused({"env": [{"name": "A", "value": FULL}] * 17})


def test_variables_of_services_are_counted_too() -> None:
    services = {f"S{n}_SERVICE_HOST": "10.0.0.1" * 10 for n in range(30_000)}
    assert "does not fit" in refused({}, service_env=services)


def test_one_object_under_many_prefixes_is_counted_each_time() -> None:
    references = {("ConfigMap", "m"): ReferencedObject({"data": {"a": FULL}})}
    sources = [{"prefix": f"p{n}", "configMapRef": {"name": "m"}} for n in range(10_000)]
    assert "does not fit" in refused({"envFrom": sources}, references=references)


def test_a_key_of_a_secret_costs_no_more_than_itself() -> None:
    encoded = base64.b64encode(b"x" * 600_000).decode()
    references = {("Secret", "s"): ReferencedObject({"data": {"large": encoded, "small": "eA=="}})}
    key = {"secretKeyRef": {"name": "s", "key": "small"}}
    env = [{"name": f"A{n}", "valueFrom": key} for n in range(3_000)]
    before = process_time()
    assert env_of(built(a_pod({"env": env}), references=references))["A2999"] == "x"
    assert process_time() - before < 1.0


def test_command_and_arguments_have_the_same_bounds() -> None:
    env = literals(HALF=HALF)
    assert refused({"env": env, "command": ["sh", "$(HALF)$(HALF)$(HALF)"]}) == (
        "command[1] is too long: the kernel takes 131071 bytes of one argument"
    )
    assert refused({"env": env, "args": ["$(HALF)"] * 100}).startswith("args[31] does not fit: ")


def test_a_subpath_is_no_longer_than_a_path() -> None:
    mounts = [{"name": "v", "mountPath": "/v", "subPathExpr": "$(A)/$(A)"}]
    assert wanted_subpaths({"volumeMounts": mounts}, {"A": "a" * 2_000})[0] == f"{'a' * 2_000}/{'a' * 2_000}"
    with pytest.raises(ContainerConfigError, match=r"volumeMounts\[0\]\.subPathExpr is too long"):
        wanted_subpaths({"volumeMounts": mounts}, {"A": "a" * 2_100})


def test_an_error_shows_the_beginning_of_a_long_name_and_nothing_of_the_value() -> None:
    message = refused({"env": [{"name": "N" * 200_000, "value": "secret"}]})
    assert "N" * 256 in message
    assert "secret" not in message
