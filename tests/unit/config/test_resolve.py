"""Flags, file and defaults become one configuration, as the kubelet would have it."""

from pathlib import Path

import pytest

from shared.agent.places import find_arguments, find_places
from shared.config.effective import OfflinePods
from shared.config.evaluation import evaluate
from shared.config.field_table import FIELDS
from shared.config.loader import encode_effective, load_effective, load_generation
from shared.config.nested import value_of
from shared.model.device_action import DeviceAction
from tests.unit.config.resolving import ALONE, EMBEDDED, refusal, resolve


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
    off, empty = resolve(tmp_path, ALONE), resolve(tmp_path, ALONE + "tracing: {}\n")
    assert (off.tracing, off.tracing_endpoint, off.tracing_rate) == (False, "", 0)
    assert (empty.tracing, empty.tracing_endpoint, empty.tracing_rate) == (True, "", 0)
    full = resolve(tmp_path, ALONE + "tracing: {endpoint: 'collector:1', samplingRatePerMillion: 5}\n")
    assert (full.tracing, full.tracing_endpoint, full.tracing_rate) == (True, "collector:1", 5)


def test_with_a_file_the_file_defaults_hold(tmp_path: Path) -> None:
    config = resolve(tmp_path, ALONE)
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
    config = resolve(
        tmp_path, ALONE + "port: 1111\nlogging: {verbosity: 2}\n", "--port", "2222", "-v=6", "--max_pods=3"
    )
    assert (config.port, config.verbosity, config.max_pods) == (2222, 6, 3)


def test_eviction_defaults_are_merged_when_asked(tmp_path: Path) -> None:
    config = resolve(tmp_path, ALONE + 'evictionHard: {"nodefs.available": "5%"}\nmergeDefaultEvictionSettings: true\n')
    assert config.eviction_hard["nodefs.available"] == "5%"
    assert config.eviction_hard["imagefs.inodesFree"] == "5%"


def test_zero_is_the_default_only_where_the_kubelet_has_it_so(tmp_path: Path) -> None:
    config = resolve(
        tmp_path, ALONE + "port: 0\nhealthzPort: 0\nregistryPullQPS: 0\nregistryBurst: 0\nresolvConf: ''\n"
    )
    assert (config.port, config.healthz_port, config.registry_pull_qps, config.registry_burst) == (10250, 0, 0, 10)
    assert config.resolv_conf == ""


def test_the_embedded_containerd_brings_its_own_socket(tmp_path: Path) -> None:
    config = resolve(tmp_path, EMBEDDED + "  root: data\n  podCIDR: 10.5.0.0/16\n")
    assert config.container_runtime_endpoint == "unix:///run/bulkhead/containerd/containerd.sock"
    assert config.embedded_containerd is not None
    assert config.embedded_containerd.root == f"{tmp_path}/data"
    assert config.embedded_containerd.state == "/run/bulkhead/containerd/state"
    assert config.embedded_containerd.pod_cidr == "10.5.0.0/16"
    assert config.embedded_containerd.registry_config_path == f"{tmp_path}/certs.d"
    config = resolve(tmp_path, EMBEDDED + "  registryConfigPath: /etc/containerd/certs.d\n")
    assert config.embedded_containerd is not None
    assert config.embedded_containerd.registry_config_path == "/etc/containerd/certs.d"


def test_an_endpoint_that_was_given_stays(tmp_path: Path) -> None:
    config = resolve(tmp_path, EMBEDDED, "--container-runtime-endpoint=unix:///x.sock")
    assert config.container_runtime_endpoint == "unix:///x.sock"


def test_the_action_on_unhealthy_devices_is_a_key_of_the_agents_own_document(tmp_path: Path) -> None:
    document = "---\napiVersion: bulkhead/v1alpha1\nkind: BulkheadConfiguration\n"
    for action in DeviceAction:
        config = resolve(tmp_path, f"{ALONE}{document}deviceUnhealthyAction: {action}\n")
        assert (config.device_unhealthy_action, config.embedded_containerd) == (action, None)
    assert resolve(tmp_path, ALONE + document).device_unhealthy_action == DeviceAction.NONE
    assert resolve(tmp_path, ALONE).device_unhealthy_action == DeviceAction.NONE


def test_the_wait_for_device_plugins_is_a_key_of_the_agents_own_document(tmp_path: Path) -> None:
    document = "---\napiVersion: bulkhead/v1alpha1\nkind: BulkheadConfiguration\n"
    for text, seconds in (("1m30s", 90.0), ("0s", 0.0)):
        assert resolve(tmp_path, f"{ALONE}{document}devicePluginWait: {text}\n").device_plugin_wait == seconds
    assert resolve(tmp_path, ALONE + document).device_plugin_wait == 300.0
    assert resolve(tmp_path, ALONE).device_plugin_wait == 300.0


def test_records_for_a_start_without_api_server_are_kept_only_where_the_agents_own_document_enables_them(
    tmp_path: Path,
) -> None:
    document = ALONE + "---\napiVersion: bulkhead/v1alpha1\nkind: BulkheadConfiguration\n"
    assert resolve(tmp_path, ALONE).offline_pods is None
    assert resolve(tmp_path, document).offline_pods is None
    assert resolve(tmp_path, document + "offlinePods: {maxAge: 2h}\n").offline_pods is None
    assert resolve(tmp_path, document + "offlinePods: {enabled: true}\n").offline_pods == OfflinePods(
        max_age=7 * 86400.0, max_bytes=16 * 2**20
    )
    text = "offlinePods: {enabled: true, maxAge: 36h, maxBytes: 1048576}\n"
    assert resolve(tmp_path, document + text).offline_pods == OfflinePods(max_age=36 * 3600.0, max_bytes=2**20)


def test_the_embedded_containerd_is_not_started_unless_enabled(tmp_path: Path) -> None:
    assert resolve(tmp_path, EMBEDDED.replace("true", "false")).embedded_containerd is None


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
    config = resolve(
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
    config = resolve(
        tmp_path,
        ALONE + f"logging: {{flushFrequency: 0, options: {{json: {output}, text: {output}}}, verbosity: 0}}\n"
        "crashLoopBackOff: {}\nmemorySwap: {}\ncontainerRuntimeEndpoint: ''\nimageMaximumGCAge: 0s\n"
        "shutdownGracePeriod: 0s\nshutdownGracePeriodCriticalPods: 0s\nsyncFrequency: 0s\nvolumeStatsAggPeriod: 0s\n",
    )
    assert config.document == resolve(tmp_path, ALONE).document
    assert (config.log_flush_frequency, config.document["logging"]["flushFrequency"]) == (5.0, "5s")
    assert resolve(tmp_path, ALONE + 'logging: {format: "", flushFrequency: 0s}\n').logging_format == "text"
    assert refusal("--log-flush-frequency=0") == [
        '--log-flush-frequency: is "0s", must be above 0 (change it or leave it out)'
    ]


def test_the_document_holds_every_default_and_durations_as_go_prints_them(tmp_path: Path) -> None:
    document = resolve(tmp_path, ALONE + "syncFrequency: 90s\n").document
    missing = [one.key for one in FIELDS if one.default is not None and value_of(document, one.key) is None]
    assert missing == []
    assert document["syncFrequency"] == "1m30s"
    assert "kind" not in document and "clusterDNS" not in document


def test_an_empty_kubeconfig_means_alone() -> None:
    assert evaluate(["--kubeconfig="]).config.kubeconfig == ""


def test_a_bool_flag_takes_no_word_and_v_has_three_forms() -> None:
    for form in (["-v", "3"], ["-v3"], ["-v=3"], ["--v=3"]):
        assert evaluate([*form, "--fail-swap-on"]).config.verbosity == 3


def test_the_effective_configuration_survives_its_file(tmp_path: Path) -> None:
    config = resolve(tmp_path, EMBEDDED + "  bridge: b0\n", "--cluster-dns=10.0.0.1,10.0.0.2")
    (tmp_path / "config.json").write_bytes(encode_effective(config, "g1"))
    assert load_effective(str(tmp_path)) == config
    assert load_generation(str(tmp_path))[1] == "g1"


def test_flags_come_from_the_environment_or_the_args_file(tmp_path: Path) -> None:
    (tmp_path / "kubelet.args").write_text("--port=1 # the port\n# nothing\n--config='a b' -v 2\n", encoding="utf-8")
    home = {"BULKHEAD_HOME": str(tmp_path)}
    assert find_arguments(find_places(home), home) == ["--port=1", "--config=a b", "-v", "2"]
    assert find_arguments(find_places(home), {**home, "KUBELET_ARGS": "--v=1"}) == ["--v=1"]
    assert find_arguments(find_places({"BULKHEAD_HOME": "/nowhere"}), {}) == []
