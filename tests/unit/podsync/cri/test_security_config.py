"""Who containers run as, and what they may do."""

from typing import Any

import pytest

from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.node.node_facts import NodeFacts
from shared.cri.interface import ImageStatus
from tests.unit.podsync.cri.container_messages import a_pod, built, security_of

WHO = '(pod: "web_ns1(U)", container: c)'


@pytest.mark.parametrize(
    ("user", "image", "text"),
    [
        (0, {"uid": 7}, f"container's runAsUser breaks non-root policy {WHO}"),
        (None, {}, f"container has runAsNonRoot and image will run as root {WHO}"),
        (
            None,
            {"username": "www"},
            f"container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root {WHO}",
        ),
        (
            None,
            {"uid": 2**31},
            "container has runAsNonRoot and image has an invalid user id (2147483648). (Must be 1-(2147483647)): "
            + WHO,
        ),
    ],
)
def test_run_as_non_root_is_verified_before_anything_is_made(
    user: int | None, image: dict[str, Any], text: str
) -> None:
    context = {"runAsNonRoot": True} | ({} if user is None else {"runAsUser": user})
    with pytest.raises(ContainerConfigError) as refused:
        built(a_pod(securityContext=context), image=ImageStatus(id="i", size=1, **image))
    assert refused.value.message == text


def test_the_image_decides_who_runs_unless_the_spec_does() -> None:
    named = ImageStatus(id="i", size=1, username="www")
    assert security_of(built(a_pod(), image=named))["run_as_username"] == "www"
    assert "run_as_user" not in security_of(built(a_pod(), image=named))
    assert security_of(built(a_pod(), image=ImageStatus(id="i", size=1, uid=5)))["run_as_user"] == {"value": 5}
    of_pod = security_of(built(a_pod(securityContext={"runAsUser": 9}), image=named))
    assert of_pod["run_as_user"] == {"value": 9}
    assert "run_as_username" not in of_pod
    assert (
        security_of(built(a_pod({"securityContext": {"runAsUser": 0}}, securityContext={"runAsUser": 9})))[
            "run_as_user"
        ]
        == {}
    )


def test_seccomp_is_the_containers_then_the_pods_then_the_nodes() -> None:
    local = {"seccompProfile": {"type": "Localhost", "localhostProfile": "a.json"}}
    unconfined = {"seccompProfile": {"type": "Unconfined"}}
    by_default = NodeFacts(node_name="n", seccomp_default=True)
    assert security_of(built(a_pod()))["seccomp"] == {"profile_type": "Unconfined"}
    assert security_of(built(a_pod(), facts=by_default))["seccomp"] == {}
    assert security_of(built(a_pod(securityContext=unconfined), facts=by_default))["seccomp"] == {
        "profile_type": "Unconfined"
    }
    assert security_of(built(a_pod({"securityContext": local}, securityContext=unconfined)))["seccomp"] == {
        "profile_type": "Localhost",
        "localhost_ref": "/var/lib/kubelet/seccomp/a.json",
    }


def test_apparmor_is_the_containers_then_the_annotations_then_the_pods() -> None:
    of_pod = {"appArmorProfile": {"type": "RuntimeDefault"}}
    pod = a_pod(securityContext=of_pod)
    context = security_of(built(pod))
    assert (context["apparmor"], context["apparmor_profile"]) == ({}, "runtime/default")
    pod["metadata"]["annotations"] = {"container.apparmor.security.beta.kubernetes.io/c": "localhost/p"}
    context = security_of(built(pod))
    assert context["apparmor"] == {"profile_type": "Localhost", "localhost_ref": "p"}
    assert context["apparmor_profile"] == "localhost/p"
    pod["spec"]["containers"][0]["securityContext"] = {"appArmorProfile": {"type": "Unconfined"}}
    assert security_of(built(pod))["apparmor_profile"] == "unconfined"
    assert "apparmor" not in security_of(built(a_pod()))


def test_unmasked_proc_hides_nothing() -> None:
    context = security_of(built(a_pod({"securityContext": {"procMount": "Unmasked"}})))
    assert "masked_paths" not in context
    assert "readonly_paths" not in context


def test_the_nodes_thermal_throttle_paths_are_masked() -> None:
    facts = NodeFacts(node_name="n", thermal_throttle_paths=("/sys/devices/system/cpu/cpu0/thermal_throttle",))
    masked = security_of(built(a_pod(), facts=facts))["masked_paths"]
    assert masked[-2:] == ["/sys/devices/virtual/powercap", "/sys/devices/system/cpu/cpu0/thermal_throttle"]
