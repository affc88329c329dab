"""With which SELinux label a PersistentVolume is mounted, from the pod, the access modes and the gate."""

from typing import Any

import pytest

from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.selinux_mount import GATE, mount_label, selinux_use
from services.volume.core.specs.volume_spec import Node, Unprocessed

DEFAULT = "system_u:object_r:container_file_t:s0"
LEVEL = {"level": "s0:c1,c2"}
LABEL = "system_u:object_r:container_file_t:s0:c1,c2"
MOUNTS = [{"name": "v", "mountPath": "/v"}]


def container(options: Any = None, mounts: Any = MOUNTS) -> dict[str, Any]:
    context = {} if options is None else {"securityContext": {"seLinuxOptions": options}}
    return {"name": "c", "volumeMounts": mounts, **context}


def pod(*containers: dict[str, Any], **context: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers) or [container()], "securityContext": context}}


def label(
    of: dict[str, Any],
    *modes: str,
    gates: tuple[str, ...] = (),
    default: str = DEFAULT,
    mode: str = "Filesystem",
) -> str | Unprocessed:
    spec = {"accessModes": list(modes or ("ReadWriteOncePod",)), "volumeMode": mode}
    node = Node(gates=frozenset(gates), file_label=default)
    volume = PersistentVolume(name="pv", spec=spec, annotations={}, claim={}, volume="v", node=node)
    return mount_label(selinux_use(of, volume))


def test_the_label_has_the_level_of_the_process_and_the_type_of_files() -> None:
    assert label(pod(seLinuxOptions=LEVEL)) == LABEL
    options = {"user": "me_u", "role": "system_r", "type": "spc_t", **LEVEL}
    assert label(pod(seLinuxOptions=options)) == "me_u:object_r:container_file_t:s0:c1,c2"


def test_the_options_of_a_container_replace_those_of_the_pod() -> None:
    of = pod(container({"level": "s0:c9"}), container(mounts=[]), seLinuxOptions=LEVEL)
    assert label(of) == "system_u:object_r:container_file_t:s0:c9"


@pytest.mark.parametrize(
    "of",
    [
        pod(),
        pod(seLinuxOptions={"type": "spc_t"}),
        pod(seLinuxOptions=LEVEL, seLinuxChangePolicy="Recursive"),
        pod(container(mounts=[{"name": "other"}]), seLinuxOptions=LEVEL),
        pod(container(mounts="broken"), seLinuxOptions=LEVEL),
        pod(seLinuxOptions="broken"),
        pod(seLinuxOptions={"level": 's0:c1",errors=panic,x="'}),
        pod(seLinuxOptions={"user": "me_u\n", **LEVEL}),
    ],
)
def test_there_is_no_label_without_a_usable_level_or_when_the_pod_declines_it(of: dict[str, Any]) -> None:
    assert label(of) == ""


def test_a_host_without_selinux_and_a_block_device_have_no_label() -> None:
    assert label(pod(seLinuxOptions=LEVEL), default="") == ""
    assert label(pod(seLinuxOptions=LEVEL), mode="Block") == ""


@pytest.mark.parametrize("modes", [["ReadWriteOnce"], ["ReadWriteMany"], ["ReadWriteOncePod", "ReadWriteOnce"]])
def test_other_access_modes_need_the_gate(modes: list[str]) -> None:
    assert label(pod(seLinuxOptions=LEVEL), *modes) == ""
    assert label(pod(seLinuxOptions=LEVEL), *modes, gates=(GATE,)) == LABEL


def test_containers_that_contradict_each_other_are_an_error_of_a_volume_with_labels() -> None:
    of = pod(container({"level": "s0:c9"}), container(), seLinuxOptions=LEVEL)
    found = label(of)
    assert isinstance(found, Unprocessed)
    assert found.reason == f"multiple SELinux labels found: {LABEL},system_u:object_r:container_file_t:s0:c9"
    assert label(of, "ReadWriteOnce") == ""
