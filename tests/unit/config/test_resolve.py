"""Flags, file and defaults become one configuration, as the kubelet would have it."""

from pathlib import Path

import pytest

from shared.agent.places import find_arguments, find_places
from shared.config.effective import EffectiveConfig, OfflinePods
from shared.config.evaluation import evaluate
from shared.config.field_table import FIELDS
from shared.config.findings import ConfigurationRefusedError
from shared.config.loader import encode_effective, load_effective, load_generation
from shared.config.nested import value_of
from shared.errors import OperatorError
from shared.model.device_action import DeviceAction

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
ALONE = HEAD + "authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n"
EMBEDDED = (
    ALONE + "---\napiVersion: bulkhead/v1alpha1\nkind: BulkheadConfiguration\nembeddedContainerd:\n  enabled: true\n"
)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BULKHEAD_HOME", "BULKHEAD_RUN_DIR", "KUBELET_ARGS"):
        monkeypatch.delenv(name, raising=False)


def given(tmp_path: Path, text: str, *flags: str) -> EffectiveConfig:
    file = tmp_path / "kubelet.yaml"
    file.write_text(text, encoding="utf-8")
    return evaluate([f"--config={file}", *flags]).config


def refusal(*arguments: str) -> list[str]:
    with pytest.raises(ConfigurationRefusedError) as refused:
        evaluate(list(arguments))
    return list(refused.value.lines)


def file_refusal(tmp_path: Path, text: str, *flags: str) -> list[str]:
    file = tmp_path / "kubelet.yaml"
    file.write_text(text, encoding="utf-8")
    return [line.removeprefix(str(file)) for line in refusal(f"--config={file}", *flags)]


def test_without_anything_the_legacy_flag_defaults_hold() -> None:
    config = evaluate([]).config
    assert config.anonymous_auth
    assert not config.webhook_authentication
    assert config.authorization_mode == "AlwaysAllow"
    assert config.read_only_port == 10255
    assert config.eviction_hard == {}
    assert config.container_runtime_endpoint == "unix:///run/containerd/containerd.sock"
    assert (config.root_dir, config.run_dir, config.cert_dir) == (
        "/var/lib/kubelet",
        "/run/bulkhead",
        "/var/lib/kubelet/pki",
    )
    assert config.tls_cert_file == "/var/lib/kubelet/pki/kubelet.crt"
    assert config.pod_logs_dir == "/var/log/pods"


def test_a_section_for_tracing_turns_it_on_even_when_it_is_empty(tmp_path: Path) -> None:
    off, empty = given(tmp_path, ALONE), given(tmp_path, ALONE + "tracing: {}\n")
    assert (off.tracing, off.tracing_endpoint, off.tracing_rate) == (False, "", 0)
    assert (empty.tracing, empty.tracing_endpoint, empty.tracing_rate) == (True, "", 0)
    full = given(tmp_path, ALONE + "tracing: {endpoint: 'collector:1', samplingRatePerMillion: 5}\n")
    assert (full.tracing, full.tracing_endpoint, full.tracing_rate) == (True, "collector:1", 5)


def test_with_a_file_the_file_defaults_hold(tmp_path: Path) -> None:
    config = given(tmp_path, ALONE)
    assert not config.anonymous_auth
    assert config.read_only_port == 0
    assert config.eviction_hard["memory.available"] == "100Mi"
    assert config.max_pods == 110


def test_one_directory_holds_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BULKHEAD_HOME", "/srv/b")
    config = evaluate([]).config
    assert (config.run_dir, config.log_dir, config.root_dir) == ("/srv/b/run", "/srv/b/log", "/srv/b/kubelet")
    assert (config.cert_dir, config.pod_logs_dir) == ("/srv/b/kubelet/pki", "/srv/b/log/pods")


def test_a_flag_wins_over_the_file(tmp_path: Path) -> None:
    config = given(tmp_path, ALONE + "port: 1111\nlogging: {verbosity: 2}\n", "--port", "2222", "-v=6", "--max_pods=3")
    assert (config.port, config.verbosity, config.max_pods) == (2222, 6, 3)


def test_eviction_defaults_are_merged_when_asked(tmp_path: Path) -> None:
    config = given(tmp_path, ALONE + 'evictionHard: {"nodefs.available": "5%"}\nmergeDefaultEvictionSettings: true\n')
    assert config.eviction_hard["nodefs.available"] == "5%"
    assert config.eviction_hard["imagefs.inodesFree"] == "5%"


def test_zero_is_the_default_only_where_the_kubelet_has_it_so(tmp_path: Path) -> None:
    config = given(tmp_path, ALONE + "port: 0\nhealthzPort: 0\nregistryPullQPS: 0\nregistryBurst: 0\nresolvConf: ''\n")
    assert (config.port, config.healthz_port, config.registry_pull_qps, config.registry_burst) == (10250, 0, 0, 10)
    assert config.resolv_conf == ""


def test_the_embedded_containerd_brings_its_own_socket(tmp_path: Path) -> None:
    config = given(tmp_path, EMBEDDED + "  root: data\n  podCIDR: 10.5.0.0/16\n")
    assert config.container_runtime_endpoint == "unix:///run/bulkhead/containerd/containerd.sock"
    assert config.embedded_containerd is not None
    assert config.embedded_containerd.root == f"{tmp_path}/data"
    assert config.embedded_containerd.state == "/run/bulkhead/containerd/state"
    assert config.embedded_containerd.pod_cidr == "10.5.0.0/16"
    assert config.embedded_containerd.registry_config_path == f"{tmp_path}/certs.d"
    config = given(tmp_path, EMBEDDED + "  registryConfigPath: /etc/containerd/certs.d\n")
    assert config.embedded_containerd is not None
    assert config.embedded_containerd.registry_config_path == "/etc/containerd/certs.d"


def test_an_endpoint_that_was_given_stays(tmp_path: Path) -> None:
    config = given(tmp_path, EMBEDDED, "--container-runtime-endpoint=unix:///x.sock")
    assert config.container_runtime_endpoint == "unix:///x.sock"


def test_the_action_on_unhealthy_devices_is_a_key_of_the_agents_own_document(tmp_path: Path) -> None:
    document = "---\napiVersion: bulkhead/v1alpha1\nkind: BulkheadConfiguration\n"
    for action in DeviceAction:
        config = given(tmp_path, f"{ALONE}{document}deviceUnhealthyAction: {action}\n")
        assert (config.device_unhealthy_action, config.embedded_containerd) == (action, None)
    assert given(tmp_path, ALONE + document).device_unhealthy_action == DeviceAction.NONE
    assert given(tmp_path, ALONE).device_unhealthy_action == DeviceAction.NONE


def test_the_wait_for_device_plugins_is_a_key_of_the_agents_own_document(tmp_path: Path) -> None:
    document = "---\napiVersion: bulkhead/v1alpha1\nkind: BulkheadConfiguration\n"
    for text, seconds in (("1m30s", 90.0), ("0s", 0.0)):
        assert given(tmp_path, f"{ALONE}{document}devicePluginWait: {text}\n").device_plugin_wait == seconds
    assert given(tmp_path, ALONE + document).device_plugin_wait == 300.0
    assert given(tmp_path, ALONE).device_plugin_wait == 300.0


def test_records_for_a_start_without_api_server_are_kept_only_where_the_agents_own_document_enables_them(
    tmp_path: Path,
) -> None:
    document = ALONE + "---\napiVersion: bulkhead/v1alpha1\nkind: BulkheadConfiguration\n"
    assert given(tmp_path, ALONE).offline_pods is None
    assert given(tmp_path, document).offline_pods is None
    assert given(tmp_path, document + "offlinePods: {maxAge: 2h}\n").offline_pods is None
    assert given(tmp_path, document + "offlinePods: {enabled: true}\n").offline_pods == OfflinePods(
        max_age=7 * 86400.0, max_bytes=16 * 2**20
    )
    text = "offlinePods: {enabled: true, maxAge: 36h, maxBytes: 1048576}\n"
    assert given(tmp_path, document + text).offline_pods == OfflinePods(max_age=36 * 3600.0, max_bytes=2**20)


def test_the_embedded_containerd_is_not_started_unless_enabled(tmp_path: Path) -> None:
    assert given(tmp_path, EMBEDDED.replace("true", "false")).embedded_containerd is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (ALONE + "port: 99999", ":5:1: port: is 99999, must be from 1 to 65535 (change it or leave it out)"),
        (ALONE + "address: localhost", ':5:1: address: is "localhost", must be an IP address'),
        (ALONE + "cgroupDriver: sytemd", ':5:1: cgroupDriver: is "sytemd", must be one of cgroupfs, systemd'),
        (ALONE + "cpuCFSQuotaPeriod: 2s", ':5:1: cpuCFSQuotaPeriod: is "2s", must be from 0.001s to 1s'),
        (ALONE + "evictionHard: {memory.free: 1Mi}", ":5:16: evictionHard.memory.free: is not an eviction signal"),
        (ALONE + "evictionHard: {memory.available: x}", ':5:16: evictionHard.memory.available: is "x", must be a'),
        (ALONE + "podLogsDir: /a//b", ':5:1: podLogsDir: is "/a//b", must be absolute and without //, . or ..'),
        (ALONE + "tlsCipherSuites: [NOPE]", ':5:1: tlsCipherSuites[0]: "NOPE" is not a cipher suite'),
        (ALONE + "containerRuntimeEndpoint: tcp://1", ':5:1: containerRuntimeEndpoint: is "tcp://1", must be a local'),
        (ALONE + "cgroupRoot: /a/../b", ':5:1: cgroupRoot: is "/a/../b", must be without .. (write'),
        (
            ALONE + f"containerRuntimeEndpoint: unix:///{'d' * 107}",
            ":5:1: containerRuntimeEndpoint: is a path of 108 bytes, sockets have at most 107 (move",
        ),
        (ALONE + "readOnlyPort: 10250", ":5:1: readOnlyPort: is 10250, which is the port of port too (choose another"),
        (ALONE + "port: 10248", ":5:1: port: is 10248, which is the port of healthzPort too (choose another port)"),
        (ALONE + "serializeImagePulls: true\nmaxParallelImagePulls: 2", ":6:1: maxParallelImagePulls: is 2 while"),
        (
            EMBEDDED + "  bridge: a-much-too-long-name",
            ':10:3: embeddedContainerd.bridge: is "a-much-too-long-name", must be a',
        ),
        (
            EMBEDDED + "  defaultRuntime: kata",
            ':10:3: embeddedContainerd.defaultRuntime: is "kata", must be runc or crun',
        ),
        (EMBEDDED + "  podCIDR: 10.0.0.1", ':10:3: embeddedContainerd.podCIDR: is "10.0.0.1", must be an IPv4 network'),
        (
            EMBEDDED + "  registryConfigPath: /a:/b",
            ':10:3: embeddedContainerd.registryConfigPath: is "/a:/b", must be one',
        ),
        (EMBEDDED + "devicePluginWait: 25h", ':10:1: devicePluginWait: is "25h", must be from 0s to 24h (change it)'),
        (
            EMBEDDED + "deviceUnhealthyAction: Restart",
            ':10:1: deviceUnhealthyAction: is "Restart", must be None, RestartContainer, FailPod (choose one of them)',
        ),
        (
            EMBEDDED + "offlinePods: {enabled: true, maxAge: 59s}",
            ':10:30: offlinePods.maxAge: is "59s", must be at least 60s (change it)',
        ),
        (
            EMBEDDED + "offlinePods: {maxBytes: 65535}",
            ":10:15: offlinePods.maxBytes: is 65535, must be from 65536 to 268435456 (change it)",
        ),
        (EMBEDDED + "  rot: x", ':10:3: embeddedContainerd.rot: unknown key (did you mean "root"?)'),
        ("port: 1\n" + HEAD.replace("v1beta1", "v1"), ':2:1: apiVersion: is "kubelet.config.k8s.io/v1" (write'),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_place(tmp_path: Path, text: str, line: str) -> None:
    lines = file_refusal(tmp_path, text)
    assert [found[: len(line)] for found in lines if line in found] == [line], lines


def test_zero_keeps_its_meaning_where_small_values_are_refused(tmp_path: Path) -> None:
    config = given(
        tmp_path, ALONE + "fileCheckFrequency: 0s\nsyncFrequency: 0s\nruntimeRequestTimeout: '0'\nmaxOpenFiles: 0\n"
    )
    assert (config.file_check_frequency, config.sync_frequency, config.runtime_request_timeout) == (20, 60, 120)
    assert config.max_open_files == 1000000


def test_a_resolv_conf_that_is_not_there_is_a_remark(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(ALONE + "resolvConf: none.conf\n")
    [remark] = evaluate([f"--config={file}"]).remarks
    assert remark.startswith(f"resolvConf: {tmp_path}/none.conf does not exist")


def test_what_the_kubelet_only_logs_is_a_remark_and_no_more(tmp_path: Path) -> None:
    file = tmp_path / "k.yaml"
    file.write_text(ALONE + "maxPods: 1\nmaxPods: 2\nPort: 5\n---\nkind: Pod\n", encoding="utf-8")
    resolved = evaluate([f"--config={file}"])
    assert (resolved.config.max_pods, resolved.config.port) == (2, 10250)
    assert [remark.removeprefix(str(file)).partition(" (")[0] for remark in resolved.remarks[:3]] == [
        f":6:1: maxPods: is given twice, first at {file}:5:1; the last one counts",
        ":9:1: is a further document, which is ignored",
        ":7:1: Port: unknown key, ignored",
    ]


def test_a_refusal_shows_the_ignored_keys_too_for_they_may_be_why(tmp_path: Path) -> None:
    lines = file_refusal(tmp_path, HEAD + "authetication: {}\nauthorization: {mode: AlwaysAllow}\n")
    assert lines[0] == ':3:1: authetication: unknown key, ignored (did you mean "authentication"?)'
    assert lines[1].startswith(": authentication.webhook.enabled: is true, which needs an API server")


def test_after_a_mistake_what_may_follow_from_it_is_left_out(tmp_path: Path) -> None:
    lines = file_refusal(tmp_path, ALONE.replace("AlwaysAllow", "5") + "port: 99999\n")
    assert [line.split(": ")[1] for line in lines] == ["authorization.mode", "port"]


@pytest.mark.parametrize(
    ("text", "flags", "exit_code"),
    [
        ("featureGates: {Nonsense: true}", [], 2),
        ("featureGates: {GracefulNodeShutdown: false}", [], 2),
        ("", ["--feature-gates=Nonsense=true"], 1),
        ("port: 99999", [], 1),
        ("port: x\nfeatureGates: {Nonsense: true}", [], 1),
    ],
)
def test_bad_gates_in_a_file_end_with_their_own_code(
    tmp_path: Path, text: str, flags: list[str], exit_code: int
) -> None:
    file = tmp_path / "k.yaml"
    file.write_text(ALONE + text, encoding="utf-8")
    with pytest.raises(ConfigurationRefusedError) as refused:
        evaluate([f"--config={file}", *flags])
    assert refused.value.exit_code == exit_code
    drop_in = tmp_path / "d" / "1.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(HEAD + text, encoding="utf-8")
    with pytest.raises(ConfigurationRefusedError) as refused:
        evaluate([f"--config-dir={drop_in.parent}", *flags])
    assert refused.value.exit_code == exit_code


def test_what_only_flags_give_is_in_the_configuration(tmp_path: Path) -> None:
    flags = ["--lock-file=l", "--exit-on-lock-contention", "--seccomp-default", "--bootstrap-kubeconfig=b", "-v=3"]
    config = evaluate(["--kubeconfig=k", *flags]).config
    assert config.lock_file == str(Path("l").absolute()) and config.exit_on_lock_contention
    assert config.bootstrap_kubeconfig == str(Path("b").absolute()) and config.seccomp_default
    assert config.document["seccompDefault"] is True
    resolved = evaluate(["--bootstrap-kubeconfig=b"])
    assert resolved.config.bootstrap_kubeconfig == ""
    assert resolved.remarks[0].startswith("--bootstrap-kubeconfig: is ignored without --kubeconfig")
    assert refusal("--exit-on-lock-contention") == [
        "--exit-on-lock-contention: needs a lock file to watch (give --lock-file too, or leave it out)"
    ]


def test_what_else_the_file_gives_is_in_the_configuration(tmp_path: Path) -> None:
    config = given(
        tmp_path,
        ALONE + "rotateCertificates: true\nserverTLSBootstrap: true\ntlsCurvePreferences: [23]\nlogging:\n"
        "  format: json\n  flushFrequency: 2000000000\n  verbosity: 2\n",
    )
    assert (config.rotate_certificates, config.server_tls_bootstrap) == (True, True)
    assert (config.logging_format, config.log_flush_frequency, config.verbosity) == ("json", 2.0, 2)
    assert config.tls_curve_preferences == (23,)
    assert config.document["logging"]["flushFrequency"] == 2000000000
    assert evaluate(["--vmodule=a=1,b*=2"]).config.vmodule == (("a", 1), ("b*", 2))
    assert config.feature_gates["RotateKubeletServerCertificate"] is True


def test_what_kubeadm_writes_for_nothing_given_is_the_default(tmp_path: Path) -> None:
    output = '{infoBufferSize: "0"}'
    config = given(
        tmp_path,
        ALONE + f"logging: {{flushFrequency: 0, options: {{json: {output}, text: {output}}}, verbosity: 0}}\n"
        "crashLoopBackOff: {}\nmemorySwap: {}\ncontainerRuntimeEndpoint: ''\nimageMaximumGCAge: 0s\n"
        "shutdownGracePeriod: 0s\nshutdownGracePeriodCriticalPods: 0s\nsyncFrequency: 0s\nvolumeStatsAggPeriod: 0s\n",
    )
    assert config.document == given(tmp_path, ALONE).document
    assert (config.log_flush_frequency, config.document["logging"]["flushFrequency"]) == (5.0, "5s")
    assert given(tmp_path, ALONE + 'logging: {format: "", flushFrequency: 0s}\n').logging_format == "text"
    assert refusal("--log-flush-frequency=0") == [
        '--log-flush-frequency: is "0s", must be above 0 (change it or leave it out)'
    ]


def test_the_document_holds_every_default_and_durations_as_go_prints_them(tmp_path: Path) -> None:
    document = given(tmp_path, ALONE + "syncFrequency: 90s\n").document
    missing = [one.key for one in FIELDS if one.default is not None and value_of(document, one.key) is None]
    assert missing == []
    assert document["syncFrequency"] == "1m30s"
    assert "kind" not in document and "clusterDNS" not in document


def test_kind_and_version_are_mandatory(tmp_path: Path) -> None:
    assert [line.partition(" (")[0] for line in file_refusal(tmp_path, "port: 1")] == [
        ":1:1: apiVersion: is missing",
        ":1:1: kind: is missing",
    ]


def test_standalone_without_its_settings_names_both_keys_to_change(tmp_path: Path) -> None:
    assert file_refusal(tmp_path, HEAD) == [
        ": authentication.webhook.enabled: is true, which needs an API server (set it to false)",
        ": authorization.mode: is Webhook, which needs an API server (set it to AlwaysAllow)",
    ]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--config", "/a\0b"], "flags: argument 2 holds a NUL byte (remove it)"),
        (["--cloud-provider=aws"], '--cloud-provider: is "aws", must be empty or external (leave it out)'),
        (["--root-dir=/a/"], '--root-dir: is "/a/", must be a path in its shortest form (no //, ., .. or final /)'),
        (["--hostname-override=a b"], '--hostname-override: node name "a b" cannot be used (give another)'),
        (
            ["--output=yaml"],
            'invalid argument "yaml" for "--output" flag: must be text or json (leave it out for text)',
        ),
        (["--config=/does/not/exist"], "--config: /does/not/exist cannot be read: No such file or"),
        (["--run-dir=/x"], "--run-dir: is /x, but the services look in /run/bulkhead (set BULKHEAD_RUN_DIR=/x for"),
    ],
)
def test_a_bad_flag_is_one_line(arguments: list[str], line: str) -> None:
    [found] = refusal(*arguments)
    assert found.startswith(line)


def test_an_empty_kubeconfig_means_alone() -> None:
    assert evaluate(["--kubeconfig="]).config.kubeconfig == ""


def test_a_bool_flag_takes_no_word_and_v_has_three_forms() -> None:
    for form in (["-v", "3"], ["-v3"], ["-v=3"], ["--v=3"]):
        assert evaluate([*form, "--fail-swap-on"]).config.verbosity == 3


def test_what_has_no_effect_yet_is_named(tmp_path: Path) -> None:
    file = tmp_path / "k.yaml"
    file.write_text(ALONE + "hairpinMode: none\nmemorySwap: {swapBehavior: NoSwap}\nvolumeStatsAggPeriod: 0s\n")
    resolved = evaluate([f"--config={file}", "--kernel-memcg-notification=false", "--container-hints=/x"])
    assert resolved.without_effect == (
        "hairpinMode", "--kernel-memcg-notification", "--container-hints",
    )  # fmt: skip


def test_the_effective_configuration_survives_its_file(tmp_path: Path) -> None:
    config = given(tmp_path, EMBEDDED + "  bridge: b0\n", "--cluster-dns=10.0.0.1,10.0.0.2")
    (tmp_path / "config.json").write_bytes(encode_effective(config, "g1"))
    assert load_effective(str(tmp_path)) == config
    assert load_generation(str(tmp_path))[1] == "g1"


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"version": 2}', b'{"version": 1, "config": {}, "generation": ""}']
)
def test_an_unusable_config_file_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(OperatorError, match="restart bootstrap"):
        load_effective(str(tmp_path))


def test_flags_come_from_the_environment_or_the_args_file(tmp_path: Path) -> None:
    (tmp_path / "kubelet.args").write_text("--port=1 # the port\n# nothing\n--config='a b' -v 2\n", encoding="utf-8")
    home = {"BULKHEAD_HOME": str(tmp_path)}
    assert find_arguments(find_places(home), home) == ["--port=1", "--config=a b", "-v", "2"]
    assert find_arguments(find_places(home), {**home, "KUBELET_ARGS": "--v=1"}) == ["--v=1"]
    assert find_arguments(find_places({"BULKHEAD_HOME": "/nowhere"}), {}) == []


def test_an_open_quote_in_the_args_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "kubelet.args").write_text("--port=1\n--config='a\n", encoding="utf-8")
    with pytest.raises(OperatorError, match=r"kubelet\.args:2: .*close the quote"):
        find_arguments(find_places({"BULKHEAD_HOME": str(tmp_path)}), {})
