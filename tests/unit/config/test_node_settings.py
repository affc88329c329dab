"""The settings of a member's Node: labels, taints, addresses, reservations, clients."""

from pathlib import Path

import pytest

from shared.config.effective import EffectiveConfig
from shared.config.evaluation import evaluate
from shared.config.findings import ConfigurationRefusedError, Findings
from shared.config.loader import encode_effective, load_effective
from shared.config.node_settings import node_ips, node_labels, parse_address

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
MEMBER = "--kubeconfig=/etc/kubernetes/kubelet.conf"


def given(tmp_path: Path, text: str, *flags: str) -> EffectiveConfig:
    file = tmp_path / "kubelet.yaml"
    file.write_text(HEAD + text, encoding="utf-8")
    return evaluate([f"--config={file}", MEMBER, *flags]).config


def refusal(tmp_path: Path, text: str, *flags: str) -> list[str]:
    with pytest.raises(ConfigurationRefusedError) as refused:
        given(tmp_path, text, *flags)
    return [line.removeprefix(f"{tmp_path}/kubelet.yaml:") for line in refused.value.lines]


def test_a_member_may_ask_the_api_server_to_authenticate(tmp_path: Path) -> None:
    config = given(tmp_path, "")
    assert (config.webhook_authentication, config.authorization_mode) == (True, "Webhook")
    assert config.joins_cluster
    assert (config.webhook_authentication_cache_ttl, config.webhook_authorized_cache_ttl) == (120.0, 300.0)
    assert (config.kube_api_qps, config.kube_api_burst, config.event_record_qps, config.event_burst) == (50, 100) * 2
    assert (config.node_lease_duration, config.node_status_report_frequency) == (40.0, 300.0)


def test_the_settings_survive_the_file_between_the_services(tmp_path: Path) -> None:
    flags = ["--node-labels=a=b", "--register-with-taints=k=v:NoSchedule", "--node-ip=10.0.0.1,fd00::1"]
    config = given(tmp_path, "systemReserved: {cpu: 500m}\nallowedUnsafeSysctls: [net.*]\n", *flags)
    (tmp_path / "config.json").write_bytes(encode_effective(config, ""))
    assert load_effective(str(tmp_path)) == config
    assert config.register_with_taints == ({"key": "k", "value": "v", "effect": "NoSchedule"},)


@pytest.mark.parametrize(
    ("text", "flags", "report"),
    [
        ("", [], 300.0),
        ("nodeStatusUpdateFrequency: 7s\n", [], 7.0),
        ("nodeStatusUpdateFrequency: 7s\nnodeStatusReportFrequency: 1m\n", [], 60.0),
        ("nodeStatusUpdateFrequency: 0s\n", [], 300.0),
        ("", ["--node-status-update-frequency=7s"], 300.0),
        ("nodeStatusUpdateFrequency: 7s\n", ["--node-status-update-frequency=9s"], 7.0),
    ],
)
def test_reports_follow_the_updates_where_the_file_sets_those_alone(
    tmp_path: Path, text: str, flags: list[str], report: float
) -> None:
    assert given(tmp_path, text, *flags).node_status_report_frequency == report


def test_labels_accumulate_and_a_key_alone_is_empty(tmp_path: Path) -> None:
    flags = [
        "--node-labels=a=b, x.io/c=d,e",
        "--node-labels=node.kubernetes.io/pool=blue,topology.kubernetes.io/zone=z",
    ]
    assert given(tmp_path, "", *flags).node_labels == {
        "a": "b",
        "x.io/c": "d",
        "e": "",
        "node.kubernetes.io/pool": "blue",
        "topology.kubernetes.io/zone": "z",
    }


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("node-role.kubernetes.io/x=", "node-role.kubernetes.io/x: in a domain that belongs to Kubernetes (only these"),
        ("kubernetes.io/z=,a.k8s.io/b=", "a.k8s.io/b, kubernetes.io/z: in a domain that belongs to Kubernetes"),
        ("-x=y", 'key "-x": '),
        ("x=a b", 'value "a b": '),
    ],
)
def test_bad_labels_are_one_line(tmp_path: Path, text: str, start: str) -> None:
    [line] = refusal(tmp_path, "", f"--node-labels={text}")
    assert line.startswith(f"--node-labels: {start}")


def test_taints_of_the_flag_replace_those_of_the_file(tmp_path: Path) -> None:
    text = "registerWithTaints: [{key: a, effect: NoExecute}]\n"
    assert given(tmp_path, text).register_with_taints == ({"key": "a", "value": "", "effect": "NoExecute"},)
    both = ["--register-with-taints=b:NoSchedule", "--register-with-taints=c=1:PreferNoSchedule,gone:NoExecute-"]
    [taint] = given(tmp_path, text, *both).register_with_taints
    assert taint == {"key": "c", "value": "1", "effect": "PreferNoSchedule"}
    assert given(tmp_path, text, "--register-with-taints=").register_with_taints == ()


@pytest.mark.parametrize(
    ("taint", "part"),
    [
        ("{key: a, effect: Never}", 'registerWithTaints[0]: effect is "Never", must be one of NoSchedule'),
        ("{effect: NoExecute}", 'registerWithTaints[0]: key "": '),
        ("{key: a, value: '-', effect: NoExecute}", 'registerWithTaints[0]: value "-": '),
        ("{key: a, effect: NoExecute, timeAdded: '2020-01-01T00:00:00Z'}", "registerWithTaints[0]: timeAdded is set"),
        ("{key: a, effect: NoExecute}, {key: a, effect: NoExecute}", "registerWithTaints[1]: a second taint a:NoExec"),
    ],
)
def test_a_bad_taint_is_named_with_its_place(tmp_path: Path, taint: str, part: str) -> None:
    line = refusal(tmp_path, f"registerWithTaints: [{taint}]\n")[0]
    assert line.startswith("3:")
    assert part in line


def test_a_taint_flag_without_effect_is_refused(tmp_path: Path) -> None:
    [line] = refusal(tmp_path, "", "--register-with-taints=a=b")
    assert line.startswith('invalid argument "a=b" for "--register-with-taints" flag: ')


@pytest.mark.parametrize(
    ("text", "ips"),
    [("", ()), ("10.0.0.1", ("10.0.0.1",)), ("::", ("::",)), (" 10.0.0.1 , fd00::1", ("10.0.0.1", "fd00::1"))],
)
def test_node_addresses(tmp_path: Path, text: str, ips: tuple[str, ...]) -> None:
    assert given(tmp_path, "", f"--node-ip={text}").node_ips == ips


def test_an_address_that_is_none_is_ignored_and_remarked() -> None:
    resolved = evaluate(["--node-ip=eth0,10.0.0.1"])
    assert resolved.config.node_ips == ("10.0.0.1",)
    assert '--node-ip: "eth0" is no IP address and is ignored' in resolved.remarks


@pytest.mark.parametrize("text", ["10.0.0.1,10.0.0.2", "10.0.0.1,::", "10.0.0.1,fd00::1,fd00::2"])
def test_addresses_that_do_not_go_together_are_refused(tmp_path: Path, text: str) -> None:
    [line] = refusal(tmp_path, "", f"--node-ip={text}")
    assert line.startswith(f'--node-ip: is "{text}"')


def test_reserved_cpus_take_the_place_of_reserved_cpu_time(tmp_path: Path) -> None:
    text = "reservedSystemCPUs: '0'\nsystemReserved: {cpu: 500m, memory: 1Gi}\nkubeReserved: {cpu: '2', pid: '100'}\n"
    config = given(tmp_path, text)
    assert config.system_reserved == {"cpu": "1", "memory": "1Gi"}
    assert config.kube_reserved == {"pid": "100"}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("kubeReserved: {gpu: '1'}\n", 'kubeReserved.gpu: cannot reserve "gpu" resource (known are cpu, memory'),
        ("systemReserved: {memory: -1Gi}\n", 'systemReserved.memory: is "-1Gi", must be a quantity that is not'),
        ("systemReserved: {memory: much}\n", 'systemReserved.memory: is "much", must be a quantity'),
        ("reservedSystemCPUs: 3-1\n", 'reservedSystemCPUs: is "3-1", must be a list of CPUs'),
        ("reservedSystemCPUs: '99999'\n", 'reservedSystemCPUs: is "99999", but CPU 99999 is not online'),
        ("reservedSystemCPUs: '0'\nkubeReservedCgroup: /k\n", "kubeReservedCgroup: cannot be set together with"),
        ("allowedUnsafeSysctls: ['a*b']\n", 'allowedUnsafeSysctls: "a*b" is neither the name of a sysctl'),
        ("nodeStatusUpdateFrequency: -1s\n", 'nodeStatusUpdateFrequency: is "-1s", must be at least 0s'),
        ("nodeLeaseDurationSeconds: -1\n", "nodeLeaseDurationSeconds: is -1, must be at least 1"),
        ("reservedSystemCPUs: 0, 1\n", 'reservedSystemCPUs: is "0, 1", must be a list of CPUs'),
    ],
)
def test_bad_values_are_one_line(tmp_path: Path, text: str, part: str) -> None:
    [line] = refusal(tmp_path, text)
    assert part in line


def test_labels_of_kubernetes_itself_are_not_free(subtests: pytest.Subtests) -> None:
    for key, free in [
        ("plain", True),
        ("example.com/x", True),
        ("notkubernetes.io/x", True),
        ("kubernetes.io/hostname", True),
        ("beta.kubernetes.io/instance-type", True),
        ("failure-domain.beta.kubernetes.io/region", True),
        ("kubelet.kubernetes.io/x", True),
        ("a.node.kubernetes.io/x", True),
        ("kubernetes.io/role", False),
        ("k8s.io/x", False),
        ("foo.k8s.io/x", False),
        ("node-role.kubernetes.io/x", False),
        ("node-restriction.kubernetes.io/x", False),
        ("anode.kubernetes.io/x", False),
    ]:
        with subtests.test(key):
            findings = Findings()
            assert node_labels({key: "v"}, findings) == {key: "v"}
            assert (findings.lines == []) is free


def test_labels_are_checked_to_the_character() -> None:
    findings = Findings()
    node_labels({f"{'d' * 253}/{'n' * 63}": "v" * 63, "a_.-b": ""}, findings)
    assert findings.lines == []
    node_labels({f"{'d' * 254}/n": "", "n" * 64: "", "a": "v" * 64, "b": "-"}, findings)
    starts = [line.partition(": ")[2].split('"')[0] for line in findings.lines]
    assert starts == ["key ", "key ", "value ", "value "]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("010.001.0.09", "10.1.0.9"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("FD00::1", "fd00::1"),
        ("fe80::1%eth0", "None"),
        ("10.0.0.256", "None"),
        ("10.0.1", "None"),
        ("", "None"),
    ],
)
def test_an_address_is_read_as_the_kubelet_reads_it(text: str, address: str) -> None:
    assert str(parse_address(text)) == address


def test_an_ipv4_address_in_ipv6_form_is_no_second_family() -> None:
    findings = Findings()
    assert node_ips("::ffff:10.0.0.1,10.0.0.2", findings) == (("10.0.0.1", "10.0.0.2"), [])
    assert len(findings.lines) == 1
