"""The table of unsupported fields agrees with what admission, the volume plugins and the CRI messages do, and with
docs/limits.md."""

from pathlib import Path
from typing import Any

import pytest

from services.podsync.core.admission.node_view import MachineFacts, NodeView
from services.podsync.core.admission.taken import taken_by
from services.podsync.core.admission.verdict import admit
from services.volume.core.files.files_source import PartReader, RefusedPart
from services.volume.core.specs.volume_spec import Node, Refused
from services.volume.plugins.projected import ProjectedPlugin
from services.volume.plugins.registry import PLUGINS, volume_spec
from shared.podspec.schema import type_errors
from shared.podspec.support import (
    MAX_CONTAINERS,
    MAX_VOLUMES,
    PERSISTENT_VOLUMES,
    TABLE,
    VOLUMES,
    Effect,
    unsupported,
    unsupported_persistent_volume,
)
from shared.podspec.volume_types import PROJECTIONS, TYPES, VOLUME_TYPES
from tests.unit.podsync.cri.container_messages import a_pod

DOCS = Path(__file__).parents[3] / "docs"
LIMITS = DOCS / "limits.md"
TRANSLATED = {name for name, kind in TYPES.items() if kind.driver}  # into volumes of the CSI driver
CLAIMED = ("persistentVolumeClaim", "ephemeral")  # stand for a PersistentVolume
NODE = Node(memory=1, csi_driver={"spec": {"volumeLifecycleModes": ["Ephemeral"]}})
GATES = frozenset(("ClusterTrustBundleProjection", "PodCertificateRequest"))


def found(pod: dict[str, Any]) -> list[tuple[str, Effect]]:
    assert type_errors(pod) == []
    return [(one.field, one.effect) for one in unsupported(pod)]


def mounting(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod whose container mounts the volume v."""
    return a_pod({"volumeMounts": [{"name": "v", "mountPath": "/v"}], **(container or {})}, **spec)


def rejection(pod: dict[str, Any]) -> str:
    facts = MachineFacts(node_name="n", labels={"kubernetes.io/os": "linux"}, kernel=(6, 1))
    view = NodeView(facts=facts, labels=facts.labels, taints=(), allocatable={})
    return admit(pod, "Pending", view, taken_by([])).reason


def test_the_page_repeats_the_table() -> None:
    text = LIMITS.read_text()
    part = text[text.index("## Pods that do not run yet") :]
    rows = [line for line in part[: part.index("\n## ", 1)].splitlines() if line.startswith("| ")][1:]
    shown = [f"{'' if row.field.startswith('more ') else '`'}{row.field}" for row in TABLE]
    assert len(rows) == len(TABLE)
    for line, begin, row in zip(rows, shown, TABLE, strict=True):
        field, effect, consequence = (cell.strip() for cell in line.strip("|").split("|"))
        assert field.replace("`", "") == begin.replace("`", "")
        assert (effect, consequence.replace("`", "")) == (row.effect, row.consequence)


def test_the_page_of_volume_types_has_a_row_for_each_type_with_its_status() -> None:
    lines = [line.strip("|").split("|") for line in (DOCS / "volume-types.md").read_text().splitlines()]
    rows = {cells[0].strip().strip("`"): cells[1].strip() for cells in lines if len(cells) == 3 and "`" in cells[0]}
    assert rows.keys() == TYPES.keys()
    for name, kind in TYPES.items():
        if kind.driver:
            assert rows[name] == f"mounted by the CSI driver `{kind.driver}`, inline and as a PersistentVolume"
        elif kind.mounted or kind.mounted_persistent:
            assert rows[name].startswith("mounted")
        else:
            begin = f"removed in Kubernetes {kind.removed}" if kind.removed else "not built"
            if kind.gate:
                begin = f"mounted with the feature gate {kind.gate}, which is off and which 1.36 has locked"
            assert rows[name].replace("`", "") == f"{begin}: use {kind.instead}"


def test_the_supported_volumes_are_the_plugins() -> None:
    gated = {name for name, kind in TYPES.items() if kind.gate}
    assert PLUGINS.keys() - {"local"} - gated | set(CLAIMED) | TRANSLATED == VOLUMES
    persistent = {name for name, plugin in PLUGINS.items() if "read_persistent" in vars(plugin)}
    assert persistent | TRANSLATED == PERSISTENT_VOLUMES


def test_a_volume_is_unsupported_exactly_where_it_is_refused(subtests: pytest.Subtests) -> None:
    for kind in [*sorted(VOLUME_TYPES.keys() - set(CLAIMED)), "ofALaterRelease"]:
        with subtests.test(kind):
            source: dict[str, Any] = {
                "driver": "d",
                "path": "/p",
                "server": "s",
                "reference": "i",
                "secretName": "s",
                "name": "m",
            }
            source |= {"wwids": ["3600"], "targetPortal": "192.0.2.1", "iqn": "iqn.2026-11.com.example:x"}
            known = {field: source[field] for field in VOLUME_TYPES.get(kind, {}) if field in source}
            pod = mounting(volumes=[{"name": "v", kind: known}])
            refused = kind not in TRANSLATED and isinstance(volume_spec(pod, "v", NODE), Refused)
            assert found(pod) == ([(f"spec.volumes[0].{kind}", Effect.WAITS)] if refused else [])


def test_a_volume_that_no_container_uses_is_not_set_up() -> None:
    volumes = [{"name": "v", "rbd": {}}]
    assert found(a_pod(volumes=volumes)) == []
    assert found(a_pod({"volumeDevices": [{"name": "v", "devicePath": "/d"}]}, volumes=volumes)) != []
    debug = [{"name": "d", "volumeMounts": [{"name": "v"}, 3, None]}, {"name": "e", "volumeMounts": 3}]
    assert found(a_pod(volumes=volumes, ephemeralContainers=debug)) != []


@pytest.mark.parametrize("medium", ["", "Memory", "HugePages", "HugePages-2Mi", "Floppy"])
def test_a_medium_is_unsupported_exactly_where_it_is_refused(medium: str) -> None:
    requests = {"resources": {"requests": {"hugepages-2Mi": "2Mi"}}}
    pod = mounting(requests, volumes=[{"name": "v", "emptyDir": {"medium": medium}}])
    refused = isinstance(volume_spec(pod, "v", NODE), Refused)
    assert found(pod) == ([("spec.volumes[0].emptyDir.medium", Effect.WAITS)] if refused else [])


@pytest.mark.parametrize("kind", [*sorted(PROJECTIONS), "ofALaterRelease"])
def test_a_projection_is_unsupported_exactly_where_it_is_refused(kind: str) -> None:
    source = {"name": "b", "signerName": "", "keyType": "ED25519", "credentialBundlePath": "p"}
    pod = mounting(volumes=[{"name": "v", "projected": {"sources": [{kind: source}]}}])
    reader = PartReader(pod, {}, GATES)
    part = ProjectedPlugin.parts(reader, "v", pod["spec"]["volumes"][0]["projected"])[0]
    refused = isinstance(part, RefusedPart) and part.reason.endswith("is not supported")
    assert found(pod) == ([(f"spec.volumes[0].projected.sources[0].{kind}", Effect.WAITS)] if refused else [])


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}, ""),
        ({"os": {"name": "windows"}}, "PodOSNotSupported"),
        ({"os": {"name": "linux"}}, ""),
        (
            {"initContainers": [{"name": f"i{n}", "image": "i"} for n in range(MAX_CONTAINERS)]},
            "PodFeatureUnsupported",
        ),
        ({"volumes": [{"name": f"v{n}", "emptyDir": {}} for n in range(MAX_VOLUMES)]}, ""),
        ({"volumes": [{"name": f"v{n}", "emptyDir": {}} for n in range(MAX_VOLUMES + 1)]}, "PodFeatureUnsupported"),
        ({"imagePullSecrets": [{"name": f"s{n}"} for n in range(2001)]}, "PodFeatureUnsupported"),
    ],
)
def test_what_admission_rejects_for_good_is_unsupported(spec: dict[str, Any], reason: str) -> None:
    pod = a_pod(**spec)
    assert rejection(pod) == reason
    assert [one.effect for one in unsupported(pod)] == ([Effect.REJECTED] if reason else [])
    assert all(reason in one.consequence for one in unsupported(pod))


def test_the_gravest_comes_first() -> None:
    pod = mounting({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}, volumes=[{"name": "v", "rbd": {}}])
    pod["spec"]["os"] = {"name": "windows"}
    assert [one.effect for one in unsupported(pod)] == [Effect.REJECTED, Effect.WAITS]


def test_a_persistent_volume_is_unsupported_where_no_plugin_takes_it(subtests: pytest.Subtests) -> None:
    for kind in sorted(VOLUME_TYPES.keys() - set(CLAIMED) | {"local"}):
        with subtests.test(kind):
            spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], kind: {}}
            fields = [one.field for one in unsupported_persistent_volume(spec)]
            assert fields == ([] if kind in PERSISTENT_VOLUMES else [f"spec.{kind}"])
