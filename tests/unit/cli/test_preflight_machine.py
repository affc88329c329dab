"""What preflight finds about the unit, the configuration and the machine."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from services.cli.command import main
from services.cli.preflight import machine
from services.cli.preflight.configuration import read_configuration, unit_findings
from services.cli.preflight.examination import Options, examine
from services.cli.preflight.findings import Finding, Severity
from services.cli.preflight.machine import (
    cgroup_findings,
    disk_findings,
    kernel_settings_findings,
    port_findings,
    running_agent,
)
from services.cli.preflight.pod_files import read_named_pods, read_static_pods
from services.cli.systemd import control
from services.cli.systemd.unit import unit_of
from shared.config.effective import EffectiveConfig
from shared.host.cgroup_layout import Hierarchies
from tests.unit.cli.systemd_bus import boot, properties, started_by
from tests.unit.cli.test_found_configuration import kubeadms_unit

UNIT = "kubelet.service"
FILES = {"FragmentPath": "/lib/systemd/system/kubelet.service", "DropInPaths": ["/d/10-kubeadm.conf"]}
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KUBELET_ARGS", raising=False)
    monkeypatch.delenv("BULKHEAD_RUN_DIR", raising=False)
    monkeypatch.setenv("BULKHEAD_HOME", str(tmp_path))
    (tmp_path / "run" / "locks").mkdir(parents=True)
    return tmp_path


def a_config(home: Path, **changes: object) -> EffectiveConfig:
    places = {"root_dir": str(home / "kubelet"), "run_dir": str(home / "run"), "log_dir": str(home / "log")}
    return EffectiveConfig(node_name="n1", cert_dir="", **{**places, **changes})  # type: ignore[arg-type]


def severities(findings: list[Finding] | tuple[Finding, ...]) -> list[tuple[Severity, str]]:
    return [(finding.severity, finding.what) for finding in findings]


def worst(findings: list[Finding] | tuple[Finding, ...]) -> list[str]:
    return [finding.what for finding in findings if finding.severity in (Severity.WARNING, Severity.PROBLEM)]


def test_kubeadms_unit_is_shown_with_its_files() -> None:
    found = unit_findings(unit_of({**kubeadms_unit(), **FILES}), {})
    files = "/lib/systemd/system/kubelet.service and /d/10-kubeadm.conf"
    assert severities(found) == [(Severity.OK, f"its flags are checked: {files}"), (Severity.OK, "is active (running)")]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"ActiveState": "failed", "SubState": "failed"}, "is failed (failed)"),
        ({"NeedDaemonReload": True}, "its files have changed, and systemd has not read them"),
        (
            {"ExecStartEx": started_by("/bin/sh", "-c", "kubelet")},
            "its command is a shell: the flags of the kubelet in it are not known",
        ),
        ({"ExecStartEx": started_by("/bin/true") * 2}, "has more than one ExecStart; the last one is checked"),
        ({"LoadState": "masked"}, "has no command that can be used (it is masked)"),
        ({"LoadState": "not-found"}, "there is no such unit"),
    ],
)
def test_an_unusual_unit_is_reported(change: dict[str, Any], what: str) -> None:
    assert worst(unit_findings(unit_of({**kubeadms_unit(), **change}), {})) == [what]


def test_a_variable_that_nothing_sets_is_noted() -> None:
    found = unit_findings(unit_of(properties("$A", "--b=${B}", "$C", "$A", "$$D")), {"C": ""})
    assert severities(found)[-1] == (Severity.NOTE, "nothing sets A, B")


def test_without_the_unit_the_flags_that_config_check_finds_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot(tmp_path, monkeypatch)
    found = read_configuration(UNIT, ())
    assert found.resolved is not None
    assert worst(found.findings)[0] == "there is no such unit"
    assert any(finding.what.startswith("checked instead: the defaults") for finding in found.findings)


def test_the_configuration_of_the_unit_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "authentication: {anonymous: {enabled: false}, webhook: {enabled: false}}\n"
        "authorization: {mode: AlwaysAllow}\n"
        "cpuManagerPolicy: none\nshutdownGracePeriod: 0s\nhairpinMode: none\nfailSwapOn: false\n"
    )
    words = "--network-plugin=cni --pod-infra-container-image=pause:3.10"
    (tmp_path / "flags.env").write_text(f'KUBELET_KUBEADM_ARGS="{words}"\n')
    unit = properties(
        f"--config={tmp_path}/config.yaml",
        "$KUBELET_KUBEADM_ARGS",
        Environment=["BULKHEAD_RUN_DIR=/run/of-the-unit"],
        EnvironmentFiles=[[f"{tmp_path}/flags.env", True]],
    )
    boot(tmp_path, monkeypatch, UNIT, unit)
    found = read_configuration(UNIT, ())
    assert found.resolved is not None
    config = found.resolved.config
    assert (config.config_file, config.run_dir) == (f"{tmp_path}/config.yaml", "/run/of-the-unit")
    # Values that are the defaults, such as those that kubeadm writes, have no consequence.
    assert worst(found.findings) == ["hairpinMode: is accepted, but without effect yet"]
    notes = [finding.where for finding in found.findings if finding.severity is Severity.NOTE]
    assert "--network-plugin" in notes


def test_gates_that_are_on_and_not_read_are_named_once() -> None:
    given = "--feature-gates=DRAListTypeAttributes=true,MemoryQoS=true,InPlacePodVerticalScalingExclusiveCPUs=true"
    found = read_configuration(UNIT, (given, "--fail-swap-on=false")).findings
    [what] = [finding.what for finding in found if finding.where == "featureGates"]
    assert what.endswith(" gates: DRAListTypeAttributes, InPlacePodVerticalScalingExclusiveCPUs")


def test_an_environment_file_that_is_missing_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot(tmp_path, monkeypatch, UNIT, properties(EnvironmentFiles=[["/nowhere/env", False]]))
    found = read_configuration(UNIT, ())
    assert found.resolved is None
    [what] = worst(found.findings)
    assert what.startswith("systemd does not start it without its environment file /nowhere/env")


def test_a_refused_configuration_is_reported_and_the_rest_still_checked(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    options = Options(flags=("--max-pods=many", "--no-such-flag"), pods=str(tmp_path / "pod.yaml"), timeout=30)
    report = examine(options)
    assert not report.can_take_over
    assert [pod.name for pod in report.pods] == ["web"]
    assert any("are not checked: the configuration cannot be used" in finding.what for finding in report.findings)


def test_without_systemd_the_flags_that_config_check_finds_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "BOOTED", tmp_path / "none")
    assert worst(read_configuration(UNIT, ()).findings)[0] == "systemd does not run this machine"


def test_a_systemd_that_does_not_answer_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot(tmp_path, monkeypatch).write_text("#!/bin/sh\necho 'no bus' >&2\nexit 1\n")
    found = read_configuration(UNIT, ())
    assert (found.resolved, worst(found.findings)) == (None, ["no bus"])


def test_the_kernel_settings_that_the_agent_changes_are_named() -> None:
    debian = {"vm/overcommit_memory": 0, "vm/panic_on_oom": 0, "kernel/panic": 0}
    [changed] = kernel_settings_findings(debian, keeps=False)
    changes = "vm.overcommit_memory from 0 to 1, kernel.panic from 0 to 10"
    assert (changed.severity, changed.what) == (
        Severity.NOTE,
        f"the agent changes kernel settings, as a kubelet does: {changes}",
    )
    [kept] = kernel_settings_findings(debian, keeps=True)
    assert (kept.severity, kept.what) == (
        Severity.NOTE,
        "kernel settings are not those of a kubelet, and stay so: vm.overcommit_memory, kernel.panic",
    )
    [unchanged] = kernel_settings_findings({"vm/overcommit_memory": 1, "kernel/panic": 10}, keeps=False)
    assert (unchanged.severity, unchanged.what) == (Severity.OK, "the kernel settings are those of a kubelet")
    assert kernel_settings_findings({}, keeps=False) == []


def test_a_machine_without_cgroups_is_a_problem() -> None:
    assert worst(cgroup_findings(Hierarchies(unified=None, by_controller={}), {})) == ["no cgroups are mounted"]


@pytest.mark.parametrize(
    ("there", "document", "missing"),
    [
        ("cpuset cpu io memory hugetlb pids rdma", {"cpuManagerPolicy": "static"}, ""),
        ("cpu io memory pids", {"cpuManagerPolicy": "none", "memoryManagerPolicy": "None"}, ""),
        ("cpu io memory pids", {}, ""),
        ("cpu io memory pids", {"cpuManagerPolicy": "static"}, "cpuset"),
        ("cpu io memory pids", {"memoryManagerPolicy": "Static"}, "cpuset"),
        ("io cpuset", {}, "cpu, memory, pids"),
    ],
)
def test_a_missing_controller_is_a_problem_where_the_configuration_needs_it(
    tmp_path: Path, there: str, document: dict[str, str], missing: str
) -> None:
    (tmp_path / "cgroup.controllers").write_text(f"{there}\n")
    expected = [f"cgroup controllers are missing: {missing}"] if missing else []
    v1 = {name: Path("/c") for name in there.split()}
    for hierarchies in (
        Hierarchies(unified=tmp_path, by_controller={}),
        Hierarchies(unified=None, by_controller=v1),
    ):
        assert worst(cgroup_findings(hierarchies, document)) == expected


def test_a_port_of_another_process_is_a_problem_and_one_of_a_kubelet_is_not(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        config = a_config(home, port=port, read_only_port=0, healthz_port=0)
        assert worst(port_findings(config)) == [f"is in use by {machine._name_of(os.getpid())} (process {os.getpid()})"]
        page = port_findings(a_config(home, port=0, read_only_port=0, healthz_port=0, node_page_port=port))
        assert [(one.severity, one.where) for one in page] == [(Severity.PROBLEM, f"--node-page-port {port}")]
        monkeypatch.setattr(machine, "_name_of", lambda pid: "kubelet")
        assert worst(port_findings(config)) == []
    assert severities(port_findings(config)) == [(Severity.OK, "is free")]


def test_a_full_disk_is_a_problem(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_MIN_FREE_BYTES", 1 << 62)
    assert len(worst(disk_findings(a_config(home)))) == 3


def test_a_threshold_of_eviction_that_is_reached_is_a_warning(home: Path) -> None:
    config = a_config(home, eviction_hard={"nodefs.available": "9999Ti"})
    assert any("below the eviction threshold nodefs.available 9999Ti" in what for what in worst(disk_findings(config)))


def test_no_agent_runs_in_an_empty_run_directory(home: Path) -> None:
    assert running_agent(str(home / "run")) == []


def test_pods_are_read_from_a_file_a_list_and_a_directory(tmp_path: Path) -> None:
    place = tmp_path / "pods"
    place.mkdir()
    (place / "a.yaml").write_text(POD + "---\n" + POD)
    (place / "b.json").write_text('{"kind": "PodList", "items": [{"metadata": {"name": "x"}}, {"kind": "Pod"}]}')
    (place / ".hidden").write_text("kind: Pod")
    pods, findings = read_named_pods(str(place))
    assert (len(pods), findings) == (4, [])
    assert len(read_named_pods(str(place / "b.json"))[0]) == 2


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("kind: Deployment\n", "holds an object of kind Deployment, which is no pod"),
        ("a: [", "not YAML"),
        ("- 1\n", "holds a document that is no object"),
        ("", "holds no manifest"),
    ],
)
def test_a_file_without_pods_is_a_finding(content: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(content)
    pods, findings = read_named_pods(str(tmp_path / "f"))
    assert not pods and findings[0].what.startswith(what)


def test_a_pipe_a_missing_file_and_a_directory_without_files_do_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_named_pods(str(tmp_path / "pipe"))[1][0].what == "is no regular file"
    assert read_named_pods(str(tmp_path / "none"))[1][0].what == "cannot be read: No such file or directory"
    assert read_named_pods(str(tmp_path)) == ([], [])


def test_static_pods_are_read_as_this_agent_reads_them(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(POD)
    (tmp_path / "bad.yaml").write_text(POD.replace("image: i", "image: [i]"))
    pods, findings = read_static_pods(str(tmp_path), "n1")
    assert [pod["metadata"]["name"] for pod in pods] == ["web-n1"]
    assert [finding.where for finding in findings] == [str(tmp_path / "bad.yaml")]


def test_the_command_prints_a_conclusion_and_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    answer = CliRunner().invoke(main, ["preflight", "--pods", str(tmp_path / "pods"), "--", "--max-pods=many"])
    assert answer.exit_code == 1
    assert answer.output.splitlines()[-1].startswith("this agent cannot take over yet: ")
    wrong = CliRunner().invoke(main, ["preflight", "--timeout", "0"])
    assert wrong.exit_code == 2
