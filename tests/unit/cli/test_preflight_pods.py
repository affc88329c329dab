"""What preflight expects of each pod, and how it is shown."""

import json
import time
from typing import Any

import pytest

from services.cli.preflight.findings import Finding, PodVerdict, Report, Section, Severity, Verdict
from services.cli.preflight.pod_verdicts import NodeSupport, verdict_on, verdicts
from services.cli.preflight.skew import TESTED, skew_finding
from services.cli.preflight.text import report_data, report_text
from services.cli.terminal.table import Paint
from shared.podspec.support import Effect
from tests.architecture.checkout import text_of

PAINT = Paint(False)


def a_pod(name: str = "web", phase: str = "Running", annotations: dict[str, str] | None = None, **spec: Any) -> Any:
    metadata = {"name": name, "namespace": "shop", "uid": "u", "annotations": annotations}
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in spec.get("volumes", ())]
    own = {"containers": [{"name": "c", "image": "i:1", "volumeMounts": mounts, **spec.pop("container", {})}], **spec}
    return {"kind": "Pod", "metadata": metadata, "spec": own, "status": {"phase": phase} if phase else None}


def verdict(pod: Any, **node: Any) -> tuple[Verdict, list[str]]:
    found = verdict_on(pod, NodeSupport(**node))
    return found.verdict, [reason.field for reason in found.reasons]


def text(*pods: PodVerdict, findings: tuple[Finding, ...] = ()) -> list[str]:
    return list(report_text(Report(node="n1", findings=findings, pods=pods), PAINT))


def test_a_pod_with_supported_fields_keeps_running() -> None:
    assert verdict(a_pod(volumes=[{"name": "v", "emptyDir": {}}])) == (Verdict.RUNS, [])
    assert "  keeps running  shop/web" in text(verdict_on(a_pod(), NodeSupport()))
    assert "  runs           shop/web" in text(verdict_on(a_pod(phase=""), NodeSupport()))


@pytest.mark.parametrize("key", ["kubernetes.io/config.mirror", "kubernetes.io/config.source"])
def test_a_static_pod_restarts(key: str) -> None:
    pod = a_pod(annotations={key: "file"})
    assert verdict(pod) == (Verdict.RESTARTS, [])
    assert "  restarts       shop/web: a static pod: this agent gives it another UID" in text(
        verdict_on(pod, NodeSupport())
    )


def test_a_field_whose_gate_is_off_is_named_and_the_pod_runs_without_it() -> None:
    pod = a_pod(volumes=[{"name": "v", "emptyDir": {"mode": 0o700}}])
    field = "spec.volumes[0].emptyDir.mode"
    assert verdict(pod, gates={"EmptyDirVolumeMode": False}) == (Verdict.RUNS, [field])
    assert verdict(pod, gates={"EmptyDirVolumeMode": True}) == (Verdict.RUNS, [])
    assert verdict(pod) == (Verdict.RUNS, []), "without a usable configuration nothing is known of gates"
    shown = text(verdict_on(pod, NodeSupport(gates={})))
    why = "the feature gate EmptyDirVolumeMode is off"
    assert f"  keeps running  shop/web: {field}: the pod runs without it: {why}" in shown
    assert shown[-1] == "this agent can take over: 0 problems, 0 warnings"


def test_options_of_mounts_keep_a_pod_from_running_since_1_37() -> None:
    mount = {"name": "v", "mountPath": "/v", "bindMountOptions": ["noexec"]}
    pod = a_pod(container={"volumeMounts": [mount]})
    field = "spec.containers[0].volumeMounts[0].bindMountOptions"
    assert verdict(pod, gates={}, release="1.36") == (Verdict.RUNS, [field])
    assert verdict(pod, gates={}, release="1.37") == (Verdict.CANNOT, [field])


def test_an_unsupported_volume_keeps_a_pod_from_running_static_or_not() -> None:
    for annotations in ({}, {"kubernetes.io/config.source": "file"}):
        pod = a_pod(volumes=[{"name": "v", "rbd": {}}], annotations=annotations)
        assert verdict(pod) == (Verdict.CANNOT, ["spec.volumes[0].rbd"])
    shown = text(verdict_on(pod, NodeSupport()))
    why = "the volume plugin rbd was removed in Kubernetes 1.31: use a PersistentVolume of the CSI driver"
    assert shown[2].startswith(f"  cannot run yet shop/web: spec.volumes[0].rbd: {why}")
    assert shown[2].endswith("the volume is not mounted: the pod waits with the event FailedMount")
    assert shown[-1] == "this agent cannot take over yet: 1 problem, 0 warnings"


def test_a_type_of_volume_of_a_later_release_is_not_taken_for_an_empty_one() -> None:
    pod = a_pod(volumes=[{"name": "v", "ofALaterRelease": {}}])
    assert verdict(pod) == (Verdict.CANNOT, ["spec.volumes[0].ofALaterRelease"])
    del pod["metadata"]["uid"]
    assert verdict(pod) == (Verdict.RUNS, [])  # in a manifest it becomes an emptyDir, as with the kubelet


def test_a_claim_counts_by_its_persistent_volume() -> None:
    volumes = [{"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "b", "ephemeral": {}}]
    claims: dict[str, Any] = {"shop/data": {"rbd": {}}, "shop/web-b": {"csi": {}}}
    found = verdict_on(a_pod(volumes=volumes), NodeSupport(claims=claims))
    assert [(one.field, one.effect) for one in found.reasons] == [
        ("spec.volumes[0].persistentVolumeClaim", Effect.WAITS)
    ]
    assert found.reasons[0].consequence.startswith("PersistentVolume spec.rbd: ")
    assert verdict(a_pod(volumes=volumes)) == (Verdict.RUNS, [])


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_stays_as_it_is(phase: str) -> None:
    assert verdict(a_pod(phase=phase, volumes=[{"name": "v", "rbd": {}}])) == (Verdict.ENDED, [])


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"kind": "Pod", "spec": []},
        {"kind": "Pod", "metadata": "x", "spec": {"containers": [{"name": 1}]}},
        {"kind": "Pod", "metadata": {"name": "x"}, "spec": {"volumes": "many"}},
        {"kind": "Pod", "metadata": {"name": "x"}, "spec": {"volumes": [{"name": "v", "emptyDir": []}]}},
        {"kind": "Pod", "metadata": {"name": ["x"]}, "status": [], "spec": {"volumes": [3]}},
    ],
)
def test_whatever_a_file_holds_there_is_a_verdict(pod: Any) -> None:
    found = verdict_on(pod, NodeSupport())
    assert found.verdict is (Verdict.CANNOT if pod else Verdict.RUNS)
    assert json.dumps(report_data(Report(node="", findings=(), pods=(found,))))


def test_what_a_pod_is_called_does_not_reach_the_terminal_as_it_is() -> None:
    pod = verdict_on(
        a_pod(name="<script>\x1b[2J\r\n\u202e", volumes=[{"name": "v", "\x1b]0;x\x07": {}}]), NodeSupport()
    )
    finding = Finding(section=Section.PODS, severity=Severity.NOTE, what="\x1b[31m", where="a\nb", remedy="\x07")
    shown = text(pod, findings=(finding,))
    assert all(line.isprintable() for line in shown)
    assert any("<script>\\x1b[2J\\r\\n" in line for line in shown)


def test_the_data_has_each_finding_and_each_reason() -> None:
    pod = verdict_on(a_pod(os={"name": "windows"}), NodeSupport())
    finding = Finding(section=Section.DISK, severity=Severity.PROBLEM, what="full", where="/", remedy="free it")
    found = report_data(Report(node="n1", findings=(finding,), pods=(pod,)))
    assert (found["canTakeOver"], found["problems"], found["warnings"]) == (False, 2, 0)
    assert found["findings"] == [
        {"section": "disk", "severity": "problem", "what": "full", "where": "/", "remedy": "free it"}
    ]
    assert found["pods"] == [
        {
            "namespace": "shop",
            "name": "web",
            "uid": "u",
            "verdict": "cannot run yet",
            "running": True,
            "reasons": [
                {
                    "field": "spec.os.name",
                    "effect": "rejected",
                    "consequence": "the pod is rejected with the reason PodOSNotSupported",
                }
            ],
        }
    ]


@pytest.mark.long
def test_five_hundred_pods_take_no_longer_than_each_of_them() -> None:
    pods = [a_pod(name=f"p{n}", volumes=[{"name": f"v{v}", "emptyDir": {}} for v in range(20)]) for n in range(500)]
    begin = time.process_time()
    found = verdicts(pods, NodeSupport())
    assert len(text(*found)) == 504
    assert time.process_time() - begin < 10


@pytest.mark.parametrize(
    ("version", "severity"),
    [
        ("v1.36.0", Severity.OK),
        ("v1.39.7-gke.1", Severity.OK),
        ("v1.40.0", Severity.WARNING),
        ("v1.35.9", Severity.WARNING),
        ("v2.36.0", Severity.WARNING),
        ("\x1b[31m", Severity.WARNING),
        (f"v{'9' * 5000}.1", Severity.WARNING),
        ("", Severity.WARNING),
    ],
)
def test_the_skew_policy_permits_an_api_server_up_to_three_releases_newer(version: str, severity: Severity) -> None:
    assert skew_finding(version, "1.36").severity is severity


def test_the_api_server_of_the_tests_is_the_one_of_the_table_of_versions() -> None:
    row, *_ = (line for line in text_of("docs/versions.md").splitlines() if line.startswith("| API server |"))
    assert f"{TESTED}." in row.split("|")[3]
    assert f"tested with {TESTED}" in skew_finding(f"v{TESTED}.2", "1.36").remedy
