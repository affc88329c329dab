"""From the effective KubeletConfiguration document to the fields of `EffectiveConfig`: seconds, bytes, absolute paths.

Knows no default: what the document does not have is not set. Pure.
"""

import posixpath
from typing import Any

from shared.config.durations import parse_duration
from shared.config.findings import Findings
from shared.config.nested import value_of
from shared.config.node_settings import check_sysctls, check_taints, reservations
from shared.config.rules_serving import usable_cluster_dns
from shared.podspec.quantity import NANO, QuantityError, parse_quantity

_NO_RESTART_PERIOD = 300.0  # seconds; the back-off where its feature gate is off
# EffectiveConfig's field -> the key it has unchanged, "" or 0 where that is unset.
_AS_IT_IS = {
    "rotate_certificates": "rotateCertificates",
    "server_tls_bootstrap": "serverTLSBootstrap",
    "verbosity": "logging.verbosity",
    "logging_format": "logging.format",
    "oom_score_adj": "oomScoreAdj",
    "max_open_files": "maxOpenFiles",
    "pod_logs_dir": "podLogsDir",
    "container_log_max_files": "containerLogMaxFiles",
    "container_log_max_workers": "containerLogMaxWorkers",
    "container_runtime_endpoint": "containerRuntimeEndpoint",
    "image_service_endpoint": "imageServiceEndpoint",
    "serialize_image_pulls": "serializeImagePulls",
    "registry_pull_qps": "registryPullQPS",
    "registry_burst": "registryBurst",
    "cgroup_driver": "cgroupDriver",
    "cgroup_root": "cgroupRoot",
    "cgroups_per_qos": "cgroupsPerQOS",
    "cpu_cfs_quota": "cpuCFSQuota",
    "pod_pids_limit": "podPidsLimit",
    "max_pods": "maxPods",
    "cluster_domain": "clusterDomain",
    "resolv_conf": "resolvConf",
    "node_status_max_images": "nodeStatusMaxImages",
    "register_node": "registerNode",
    "provider_id": "providerID",
    "controller_attach_detach": "enableControllerAttachDetach",
    "pods_per_core": "podsPerCore",
    "local_storage_capacity_isolation": "localStorageCapacityIsolation",
    "change_detection_strategy": "configMapAndSecretChangeDetectionStrategy",
    "kube_api_qps": "kubeAPIQPS",
    "kube_api_burst": "kubeAPIBurst",
    "event_record_qps": "eventRecordQPS",
    "event_burst": "eventBurst",
    "enable_server": "enableServer",
    "address": "address",
    "port": "port",
    "read_only_port": "readOnlyPort",
    "healthz_bind_address": "healthzBindAddress",
    "healthz_port": "healthzPort",
    "tls_min_version": "tlsMinVersion",
    "anonymous_auth": "authentication.anonymous.enabled",
    "authorization_mode": "authorization.mode",
    "webhook_authentication": "authentication.webhook.enabled",
    "enable_debugging_handlers": "enableDebuggingHandlers",
}
_SECONDS = {
    "file_check_frequency": "fileCheckFrequency",
    "sync_frequency": "syncFrequency",
    "runtime_request_timeout": "runtimeRequestTimeout",
    "container_log_monitor_interval": "containerLogMonitorInterval",
    "cpu_cfs_quota_period": "cpuCFSQuotaPeriod",
    "eviction_pressure_transition_period": "evictionPressureTransitionPeriod",
    "node_status_update_frequency": "nodeStatusUpdateFrequency",
    "node_status_report_frequency": "nodeStatusReportFrequency",
    "webhook_authentication_cache_ttl": "authentication.webhook.cacheTTL",
    "webhook_authorized_cache_ttl": "authorization.webhook.cacheAuthorizedTTL",
    "webhook_unauthorized_cache_ttl": "authorization.webhook.cacheUnauthorizedTTL",
    "streaming_connection_idle_timeout": "streamingConnectionIdleTimeout",
}
_PATHS = {
    "static_pod_path": "staticPodPath",
    "tls_cert_file": "tlsCertFile",
    "tls_private_key_file": "tlsPrivateKeyFile",
    "client_ca_file": "authentication.x509.clientCAFile",
}


def settings_of(document: dict[str, Any], findings: Findings) -> dict[str, Any]:
    """EffectiveConfig's fields that come from KubeletConfiguration; the document has its defaults filled in."""
    system_reserved, kube_reserved = reservations(document, findings)
    output = value_of(document, f"logging.options.{value_of(document, 'logging.format')}") or {}
    restart = value_of(document, "crashLoopBackOff.maxContainerRestartPeriod")
    return {
        **{name: value_of(document, key) for name, key in _AS_IT_IS.items()},
        **{name: seconds(value_of(document, key)) for name, key in _SECONDS.items()},
        **{name: absolute(value_of(document, key)) for name, key in _PATHS.items()},
        "vmodule": tuple(
            (str(item.get("filePattern", "")), int(item.get("verbosity", 0)))
            for item in value_of(document, "logging.vmodule") or ()
        ),
        "log_flush_frequency": seconds(value_of(document, "logging.flushFrequency")),
        "log_split_stream": bool(output.get("splitStream")),
        "container_log_max_size": _bytes(value_of(document, "containerLogMaxSize")),
        "log_info_buffer_size": _bytes(output.get("infoBufferSize")),
        "max_container_restart_period": _NO_RESTART_PERIOD if restart is None else seconds(restart),
        "max_parallel_image_pulls": value_of(document, "maxParallelImagePulls") or 0,
        "image_verification_policy": value_of(document, "imagePullCredentialsVerificationPolicy") or "",
        "preloaded_images": tuple(document.get("preloadedImagesVerificationAllowlist") or ()),
        "seccomp_default": bool(value_of(document, "seccompDefault")),
        "cluster_dns": usable_cluster_dns(document),
        "eviction_hard": dict(document.get("evictionHard") or {}),
        "node_lease_duration": float(document["nodeLeaseDurationSeconds"]),
        "register_with_taints": check_taints(document, findings),
        "system_reserved": system_reserved,
        "kube_reserved": kube_reserved,
        "enforce_node_allocatable": tuple(document.get("enforceNodeAllocatable") or ()),
        "allowed_unsafe_sysctls": check_sysctls(document, findings),
        "tls_cipher_suites": tuple(document.get("tlsCipherSuites") or ()),
        "tls_curve_preferences": tuple(document.get("tlsCurvePreferences") or ()),
    }


def seconds(value: str | int) -> float:
    """A duration of the document; a bare number is nanoseconds."""
    return value / 1e9 if isinstance(value, int) else parse_duration(value)


def absolute(path: str) -> str:
    """The path from the top, read from where we are; "" stays."""
    return posixpath.abspath(path) if path else ""


def _bytes(quantity: str | None) -> int:
    try:
        return parse_quantity(quantity or "0").nanos // NANO
    except QuantityError:  # a finding of the rules
        return 0
