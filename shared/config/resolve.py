"""Merges flags, configuration file and defaults into the effective configuration (reference config.md 2, 3.6, 5.7).

Decides what holds; reads no file and asks the machine nothing. All problems come out together.
"""

import ipaddress
import posixpath
from dataclasses import dataclass
from typing import Any

from shared.config.document import Document, check_fields
from shared.config.durations import parse_duration
from shared.config.effective import EffectiveConfig, EmbeddedContainerd
from shared.config.fields import BULKHEAD_CONFIGURATION, KUBELET_CONFIGURATION, RELATIVE_PATHS, WITH_EFFECT
from shared.config.findings import Findings
from shared.config.flags import Flags, put_value
from shared.config.node_settings import check_sysctls, check_taints, node_ips, node_labels, reservations
from shared.config.places import Places
from shared.config.rules import check_listeners, check_pod_logs_dir, check_rules, value_of

_KUBELET = ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration")
_BULKHEAD = ("bulkhead/v1alpha1", "BulkheadConfiguration")
_EVICTION_HARD = {
    "memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
    "imagefs.available": "15%", "imagefs.inodesFree": "5%",
}  # fmt: skip


@dataclass(frozen=True)
class Resolved:
    """The outcome: the configuration, the keys given that nothing acts on yet, and remarks that are no errors."""

    config: EffectiveConfig
    without_effect: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def resolve(documents: list[Document], flags: Flags, places: Places, hostname: str, findings: Findings) -> Resolved:
    """Check and merge. `documents` are those of `--config` (none = flags only). Raises ConfigurationRefusedError."""
    file = flags.own.get("config", "")
    kubelet, extension = _sort_documents(documents, file, findings)
    data = kubelet.data
    findings.places, findings.default_place = dict(kubelet.places), file or "defaults"
    check_fields(data, KUBELET_CONFIGURATION, findings)
    embedded = _embedded(extension, file, places, findings)
    findings.refuse_if_any()  # the rules below rely on the types
    data = _without_nulls(data)
    _rebase_paths(data, file)
    report_frequency = _report_frequency(data)
    gates = {**data.get("featureGates", {}), **flags.fields.get("featureGates", {})}
    for key, value in flags.fields.items():
        put_value(data, key, gates if key == "featureGates" else value)
        findings.places[key] = flags.places[key]
    check_rules(data, findings)
    own, remarks = _own_flags(flags, places, hostname, findings)
    fields = _fields(data, from_file=bool(file), places=places, findings=findings)
    fields["node_status_report_frequency"] = report_frequency
    if embedded and "containerRuntimeEndpoint" not in data:
        fields["container_runtime_endpoint"] = f"unix://{embedded.socket}"
    remarks += _settle_tls(fields, own)
    config = EffectiveConfig(**own, **fields, embedded_containerd=embedded, document=data)
    if not config.joins_cluster:
        _check_standalone(config, findings)
    listeners = [("port", config.address, config.port if config.enable_server else 0)]
    listeners.append(("readOnlyPort", config.address, config.read_only_port))
    listeners.append(("healthzPort", config.healthz_bind_address, config.healthz_port))
    check_listeners(listeners, data, findings)
    findings.refuse_if_any()
    unused = tuple(key for key in _given_keys(data) if key not in WITH_EFFECT)
    return Resolved(config, unused, tuple(remarks))


def _sort_documents(documents: list[Document], file: str, findings: Findings) -> tuple[Document, Document | None]:
    kubelet, extension = Document(), None
    if file and not documents and not findings.lines:
        findings.add("", "is empty", "write a KubeletConfiguration into it, or leave out --config", place=file)
    for index, document in enumerate(documents):
        named = (document.data.get("apiVersion"), document.data.get("kind"))
        if index == 0:
            kubelet = document
            for key, given, wanted in zip(("apiVersion", "kind"), named, _KUBELET, strict=True):
                if given != wanted:
                    what = "is missing" if given is None else f'is "{given}"'
                    findings.add(key, what, f"write {key}: {wanted}", place=document.places.get(key, document.place))
        elif named == _BULKHEAD and extension is None:
            extension = document
        else:
            findings.add(
                "",
                "is a further document that nothing reads",
                f"remove it, or make it one {_BULKHEAD[1]} of {_BULKHEAD[0]}",
                place=document.place,
            )
    return kubelet, extension


def _without_nulls(data: dict[str, Any]) -> dict[str, Any]:
    return {k: _without_nulls(v) if isinstance(v, dict) else v for k, v in data.items() if v is not None}


def _rebase_paths(data: dict[str, Any], file: str) -> None:
    directory = posixpath.dirname(posixpath.abspath(file))
    for key in RELATIVE_PATHS:
        if path := value_of(data, key):
            put_value(data, key, path if path.startswith("/") else _join(directory, path))


def _join(directory: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(directory, path))


def _own_flags(flags: Flags, places: Places, hostname: str, findings: Findings) -> tuple[dict[str, Any], list[str]]:
    """EffectiveConfig's fields that only flags can set, and remarks."""
    own = flags.own
    node_name = (own.get("hostname-override") or hostname).strip().lower()
    if not node_name or len(node_name) > 253 or any(c.isspace() or c in "/%" for c in node_name):
        findings.add("", f'node name "{node_name}" cannot be used', "give another", place="--hostname-override")
    provider = own.get("cloud-provider", "")
    if provider not in ("", "external"):
        findings.add("", f'is "{provider}", must be empty or external', "leave it out", place="--cloud-provider")
    ips, remarks = node_ips(own.get("node-ip", ""), findings)
    run_dir = posixpath.abspath(own.get("run-dir") or places.run_dir)
    if run_dir != places.run_dir:
        remedy = f"set BULKHEAD_RUN_DIR={run_dir} for supervisord, or leave out the flag"
        findings.add("", f"is {run_dir}, but the services look in {places.run_dir}", remedy, place="--run-dir")
    root = own.get("root-dir", places.root_dir)
    if not root or posixpath.normpath(root) != root:
        findings.add("", f'is "{root}", must be a path in its shortest form', "no //, ., .. or final /", "--root-dir")
    fields = {
        "node_name": node_name,
        "root_dir": posixpath.abspath(root),
        "run_dir": run_dir,
        "log_dir": posixpath.abspath(own.get("log-dir") or places.log_dir),
        "cert_dir": posixpath.abspath(own.get("cert-dir") or places.cert_dir),
        "kubeconfig": posixpath.abspath(own["kubeconfig"]) if own.get("kubeconfig") else "",
        "config_file": posixpath.abspath(own["config"]) if own.get("config") else "",
        "node_labels": node_labels(own.get("node-labels", ""), findings),
        "node_ips": ips,
        "external_cloud_provider": provider == "external",
    }
    return fields, remarks


def _report_frequency(data: dict[str, Any]) -> float:
    """Seconds; follows the update frequency where the file sets that one alone (reference config.md 2.2)."""
    given = (data.get(key) or "0" for key in ("nodeStatusReportFrequency", "nodeStatusUpdateFrequency"))
    report, update = (parse_duration(text) for text in given)
    return report or update or 300.0


def _fields(data: dict[str, Any], *, from_file: bool, places: Places, findings: Findings) -> dict[str, Any]:
    """EffectiveConfig's fields from the merged data. `kept` keeps a zero, `nonzero` takes the default for it."""

    def kept(key: str, default: Any) -> Any:
        value = value_of(data, key)
        return default if value is None else value

    def nonzero(key: str, default: Any) -> Any:
        return value_of(data, key) or default

    def seconds(key: str, default: float) -> float:
        return parse_duration(kept(key, "0")) or default

    pod_logs_dir = nonzero("podLogsDir", places.pod_logs_dir)
    check_pod_logs_dir(pod_logs_dir, findings)
    system_reserved, kube_reserved = reservations(data, findings)
    parallel = kept("maxParallelImagePulls", 0)
    pids = kept("podPidsLimit", -1)
    return {
        "verbosity": kept("logging.verbosity", 0),
        "oom_score_adj": kept("oomScoreAdj", -999),
        "max_open_files": nonzero("maxOpenFiles", 1000000),
        "static_pod_path": _absolute(kept("staticPodPath", "")),
        "file_check_frequency": seconds("fileCheckFrequency", 20.0),
        "sync_frequency": seconds("syncFrequency", 60.0),
        "pod_logs_dir": pod_logs_dir,
        "container_runtime_endpoint": nonzero("containerRuntimeEndpoint", "unix:///run/containerd/containerd.sock"),
        "image_service_endpoint": kept("imageServiceEndpoint", ""),
        "runtime_request_timeout": seconds("runtimeRequestTimeout", 120.0),
        "max_container_restart_period": seconds("crashLoopBackOff.maxContainerRestartPeriod", 300.0),
        "serialize_image_pulls": kept("serializeImagePulls", parallel < 2),
        "max_parallel_image_pulls": parallel,
        "registry_pull_qps": kept("registryPullQPS", 5),
        "registry_burst": nonzero("registryBurst", 10),
        "cgroup_driver": nonzero("cgroupDriver", "cgroupfs"),
        "cgroup_root": kept("cgroupRoot", ""),
        "cgroups_per_qos": kept("cgroupsPerQOS", True),
        "cpu_cfs_quota": kept("cpuCFSQuota", True),
        "cpu_cfs_quota_period": seconds("cpuCFSQuotaPeriod", 0.1),
        "pod_pids_limit": -1 if pids < 0 else pids,
        "max_pods": nonzero("maxPods", 110),
        "seccomp_default": kept("seccompDefault", False),
        "cluster_dns": tuple(kept("clusterDNS", ())),
        "cluster_domain": kept("clusterDomain", ""),
        "resolv_conf": kept("resolvConf", "/etc/resolv.conf"),
        "eviction_hard": _eviction_hard(data, from_file),
        "eviction_pressure_transition_period": seconds("evictionPressureTransitionPeriod", 300.0),
        "node_status_update_frequency": seconds("nodeStatusUpdateFrequency", 10.0),
        "node_status_max_images": kept("nodeStatusMaxImages", 50),
        "node_lease_duration": float(kept("nodeLeaseDurationSeconds", 40)),
        "register_node": kept("registerNode", True),
        "register_with_taints": check_taints(data, findings),
        "provider_id": kept("providerID", ""),
        "controller_attach_detach": kept("enableControllerAttachDetach", True),
        "pods_per_core": kept("podsPerCore", 0),
        "system_reserved": system_reserved,
        "kube_reserved": kube_reserved,
        "local_storage_capacity_isolation": kept("localStorageCapacityIsolation", True),
        "allowed_unsafe_sysctls": check_sysctls(data, findings),
        "change_detection_strategy": nonzero("configMapAndSecretChangeDetectionStrategy", "Watch"),
        "kube_api_qps": kept("kubeAPIQPS", 50),
        "kube_api_burst": nonzero("kubeAPIBurst", 100),
        "event_record_qps": kept("eventRecordQPS", 50),
        "event_burst": nonzero("eventBurst", 100),
        "enable_server": kept("enableServer", True),
        "address": nonzero("address", "0.0.0.0"),
        "port": nonzero("port", 10250),
        "read_only_port": kept("readOnlyPort", 0 if from_file else 10255),
        "healthz_bind_address": nonzero("healthzBindAddress", "127.0.0.1"),
        "healthz_port": kept("healthzPort", 10248),
        "tls_cert_file": _absolute(kept("tlsCertFile", "")),
        "tls_private_key_file": _absolute(kept("tlsPrivateKeyFile", "")),
        "tls_min_version": kept("tlsMinVersion", ""),
        "tls_cipher_suites": tuple(kept("tlsCipherSuites", ())),
        "client_ca_file": _absolute(kept("authentication.x509.clientCAFile", "")),
        "anonymous_auth": kept("authentication.anonymous.enabled", not from_file),
        "authorization_mode": nonzero("authorization.mode", "Webhook" if from_file else "AlwaysAllow"),
        "webhook_authentication": kept("authentication.webhook.enabled", from_file),
        "webhook_authentication_cache_ttl": seconds("authentication.webhook.cacheTTL", 120.0),
        "webhook_authorized_cache_ttl": seconds("authorization.webhook.cacheAuthorizedTTL", 300.0),
        "webhook_unauthorized_cache_ttl": seconds("authorization.webhook.cacheUnauthorizedTTL", 30.0),
        "streaming_connection_idle_timeout": seconds("streamingConnectionIdleTimeout", 14400.0),
        "enable_debugging_handlers": kept("enableDebuggingHandlers", True),
    }


def _absolute(path: str) -> str:
    return posixpath.abspath(path) if path else ""


def _eviction_hard(data: dict[str, Any], from_file: bool) -> dict[str, str]:
    given: dict[str, str] | None = data.get("evictionHard")
    if not from_file:
        return given or {}
    if given is None:
        return dict(_EVICTION_HARD)
    return {**_EVICTION_HARD, **given} if data.get("mergeDefaultEvictionSettings") else given


def _settle_tls(fields: dict[str, Any], own: dict[str, Any]) -> list[str]:
    if not fields["tls_cert_file"] and not fields["tls_private_key_file"]:
        fields["tls_cert_file"] = f"{own['cert_dir']}/kubelet.crt"
        fields["tls_private_key_file"] = f"{own['cert_dir']}/kubelet.key"
    elif not fields["tls_cert_file"] or not fields["tls_private_key_file"]:
        return ["only one of tlsCertFile and tlsPrivateKeyFile is set: the server has no certificate (set both)"]
    return []


def _check_standalone(config: EffectiveConfig, findings: Findings) -> None:
    if config.webhook_authentication:
        findings.add("authentication.webhook.enabled", "is true, which needs an API server", "set it to false")
    if config.authorization_mode == "Webhook":
        findings.add("authorization.mode", "is Webhook, which needs an API server", "set it to AlwaysAllow")


def _embedded(extension: Document | None, file: str, places: Places, findings: Findings) -> EmbeddedContainerd | None:
    if extension is None:
        return None
    own = Findings(places=extension.places, default_place=file)
    check_fields(extension.data, BULKHEAD_CONFIGURATION, own)
    given: dict[str, Any] = _without_nulls(extension.data).get("embeddedContainerd", {})
    if not own.lines:
        _check_embedded(given, own)
    findings.lines += own.lines
    if own.lines or not given.get("enabled", False):
        return None
    directory = posixpath.dirname(posixpath.abspath(file))
    runtime = f"{places.run_dir}/containerd"
    path = given.get("path", "containerd")
    return EmbeddedContainerd(
        root=_join(directory, given.get("root", places.containerd_root)),
        state=_join(directory, given.get("state", places.containerd_state)),
        socket=f"{runtime}/containerd.sock",
        config_file=f"{runtime}/config.toml",
        cni_conf_dir=f"{runtime}/cni",
        cni_bin_dir=_join(directory, given.get("cniBinDir", EmbeddedContainerd.cni_bin_dir)),
        bridge=given.get("bridge", EmbeddedContainerd.bridge),
        pod_cidr=given.get("podCIDR", EmbeddedContainerd.pod_cidr),
        sandbox_image=given.get("sandboxImage", EmbeddedContainerd.sandbox_image),
        path=_join(directory, path) if "/" in path else path,
    )


def _check_embedded(given: dict[str, Any], findings: Findings) -> None:
    bridge = given.get("bridge", "bulkhead0")
    if not 0 < len(bridge) <= 15 or "/" in bridge or bridge.strip() != bridge:
        what = f'is "{bridge}", must be a network interface name'
        findings.add("embeddedContainerd.bridge", what, "at most 15 characters, no / or space")
    try:
        network = ipaddress.IPv4Network(given.get("podCIDR", "10.89.0.0/16"))
        wide_enough = network.prefixlen <= 29
    except ValueError:
        wide_enough = False
    if not wide_enough:
        what = f'is "{given.get("podCIDR")}", must be an IPv4 network of /29 or wider'
        findings.add("embeddedContainerd.podCIDR", what, "such as 10.89.0.0/16")


def _given_keys(data: dict[str, Any], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for name, value in data.items():
        dotted = f"{prefix}{name}"
        schema = value_of(KUBELET_CONFIGURATION, dotted)
        keys += _given_keys(value, f"{dotted}.") if isinstance(schema, dict) else [dotted]
    return keys
