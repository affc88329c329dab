"""What is mounted into a container, in what order and how."""

from typing import Any

import pytest

from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.cri.container_mounts import MountedVolume, wanted_subpaths
from services.podsync.core.node.node_facts import NodeFacts
from shared.model.objects import Object
from tests.unit.podsync.cri.container_messages import a_pod, built


def mounting(*mounts: dict[str, Any], **container: Any) -> Object:
    return a_pod({"volumeMounts": list(mounts), **container}, volumes=[{"name": "v"}])


VOLUMES = {"v": MountedVolume(host_path="/h/v"), "r": MountedVolume(host_path="/h/r", readonly=True)}


def test_the_options_of_a_mount_go_to_the_runtime_with_their_gate() -> None:
    pod = mounting({"name": "v", "mountPath": "/v", "bindMountOptions": ["noexec", "nodev"]})
    able = NodeFacts(node_name="n", bind_mount_options=True)
    assert built(pod, facts=able, volumes=VOLUMES)["mounts"][0]["mount_options"] == ["noexec", "nodev"]
    assert "mount_options" not in built(pod, volumes=VOLUMES)["mounts"][0]


def test_subpaths_are_expanded_and_kept_inside_the_volume() -> None:
    mounts = [
        {"name": "v", "mountPath": "/a"},
        {"name": "v", "mountPath": "/b", "subPath": "x/y"},
        {"name": "v", "mountPath": "/c", "subPathExpr": "d-$(P)"},
    ]
    assert wanted_subpaths({"volumeMounts": mounts}, {"P": "p"}) == {1: "x/y", 2: "d-p"}
    assert wanted_subpaths({"volumeMounts": mounts}, {"P": "p"}, image_volumes=("v",)) == {}


@pytest.mark.parametrize(
    ("mount", "text"),
    [
        ({"subPathExpr": "$(A)/$(B)"}, "missing value for A, B"),
        ({"subPathExpr": "$(ROOT)"}, "error SubPath `$(ROOT)` must not be an absolute path"),
        ({"subPathExpr": "a/$(UP)"}, "unable to provision SubPath `a/$(UP)`: must not contain '..'"),
        ({"subPath": "a/../b"}, "unable to provision SubPath `a/../b`: must not contain '..'"),
    ],
)
def test_subpaths_that_lead_out_are_refused(mount: dict[str, str], text: str) -> None:
    with pytest.raises(ContainerConfigError) as refused:
        wanted_subpaths(
            {"volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}, {"ROOT": "/x", "UP": "../s3cret", "B": ""}
        )
    assert refused.value.message == text
