"""Says which service reads which setting, and so which services a changed configuration restarts. Pure.

A test compares the tables with the code of the services. What only bootstrap's evaluation reads has no reader.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields

from msgspec import Struct

from shared.config.effective import KEY, EffectiveConfig
from shared.config.gate_releases import EVERY_GATE, enabled
from shared.config.gates import declared_features
from shared.config.nested import value_of
from shared.config.pod_costs import NO_COST, PodCost, pod_cost

_ALL = "bootstrap sources volume pleg podsync status server"

# Fields of EffectiveConfig, by the services that read them once, at their start.
_FIELDS = {
    "bootstrap": (
        "bootstrap_kubeconfig config_dir config_file exit_on_lock_contention kubeconfig make_iptables_util_chains "
        "protect_kernel_defaults reload_config rotate_certificates"
    ),
    "pleg": "volume_stats_agg_period",
    "podsync": (
        "allowed_unsafe_sysctls cluster_dns cluster_domain container_log_max_files memory_reservation_policy "
        "default_pod_sysctls memory_throttling_factor qos_reserved "
        "container_log_max_size container_log_max_workers container_log_monitor_interval cpu_cfs_quota "
        "cpu_manager_policy cpu_manager_policy_options cpu_manager_reconcile_period memory_manager_policy "
        "device_plugin_wait device_unhealthy_action "
        "reserved_memory reserved_system_cpus topology_manager_policy topology_manager_policy_options "
        "topology_manager_scope "
        "cpu_cfs_quota_period credential_provider_bin_dir credential_providers eviction_max_pod_grace_period "
        "eviction_minimum_reclaim eviction_pressure_transition_period eviction_soft_grace_period "
        "image_gc_high_threshold_percent image_gc_low_threshold_percent image_maximum_gc_age image_minimum_gc_age "
        "image_verification_policy kube_reserved kube_reserved_cgroup local_storage_capacity_isolation "
        "max_container_restart_period max_parallel_image_pulls maximum_dead_containers pod_cidr "
        "maximum_dead_containers_per_container minimum_container_ttl pod_pids_limit pods_per_core preloaded_images "
        "registry_burst registry_pull_qps resolv_conf seccomp_default serialize_image_pulls system_reserved "
        "system_reserved_cgroup"
    ),
    "server": (
        "address anonymous_auth authorization_mode enable_debug_flags_handler enable_debugging_handlers "
        "enable_profiling_handler enable_system_log_handler enable_system_log_query healthz_bind_address healthz_port "
        "node_page_port read_only_port streaming_connection_idle_timeout tls_cipher_suites tls_curve_preferences "
        "tls_min_version webhook_authentication webhook_authentication_cache_ttl webhook_authorized_cache_ttl "
        "webhook_unauthorized_cache_ttl"
    ),
    "sources": "change_detection_strategy file_check_frequency http_check_frequency static_pod_url_header",
    "status": (
        "event_burst event_record_qps external_cloud_provider node_lease_duration node_status_max_images "
        "node_status_report_frequency node_status_update_frequency provider_id register_node"
    ),
    "bootstrap podsync": "cgroup_driver",
    "bootstrap sources": "static_pod_path static_pod_url",
    "bootstrap sources status": "dynamic_config_dir",
    "bootstrap server": "cert_dir client_ca_file server_tls_bootstrap tls_cert_file tls_private_key_file",
    "pleg podsync": (
        "cgroup_root cgroups_per_qos enforce_node_allocatable eviction_hard eviction_soft kubelet_cgroups "
        "runtime_cgroups system_cgroups"
    ),
    "podsync status": (
        "max_pods node_ips node_labels register_with_taints shutdown_grace_period "
        "shutdown_grace_period_by_pod_priority shutdown_grace_period_critical_pods"
    ),
    "sources status": "kube_api_burst kube_api_qps offline_pods",
    "status server": "enable_server port",
    "volume": "volume_plugin_dir",
    "volume status": "controller_attach_detach",
    "pleg podsync server": "container_runtime_endpoint image_service_endpoint runtime_request_timeout",
    "bootstrap pleg podsync server": "pod_logs_dir",
    "bootstrap sources volume podsync status server": "joins_cluster sync_frequency",
    _ALL: "emulated_version max_open_files oom_score_adj tracing tracing_endpoint tracing_rate",
}
# Keys that a service reads from the document.
_DOCUMENT = {"podsync": "memorySwap.swapBehavior singleProcessOOMKill userNamespaces.idsPerPod"}
# Feature gates. `declared features`: those that the Node declares.
_GATES = {
    "bootstrap": "AllowDNSOnlyNodeCSR KubeletInUserNamespace",
    "podsync": (
        "ContainerRestartRules ContainerStopSignals DRAExtendedResource DefaultPodSysctls "
        "DisableCPUQuotaWithExclusiveCPUs EnvFiles "
        "HostnameOverride InPlacePodLevelResourcesVerticalScaling "
        "InPlacePodVerticalScalingMemoryBackedVolumes "
        "InPlacePodVerticalScalingInitContainers InPlacePodVerticalScalingSchedulerPreemption "
        "KubeletSeparateDiskGC MemoryQoS NodeDeclaredFeatures "
        "PodLevelResourceManagers PodLevelResources PodReadyToStartContainersCondition QOSReserved "
        "ResourceHealthStatus ResourceHealthStatusMessage RestartAllContainersOnContainerExits"
    ),
    "server": "ComponentFlagz ComponentStatusz PodLogsQuerySplitStreams ReloadKubeletServerCertificateFile",
    "volume": "CSIVolumeHealth ClusterTrustBundleProjection GitRepoVolumeDriver PodCertificateRequest SELinuxMount",
    "sources": "WatchListClient",
    "podsync volume": "AtomicWriteVolumeUserFields EmptyDirVolumeMode",
    "podsync status": "VolumeBindMountOptions",
    "bootstrap server": "ContainerCheckpoint PodsAPI",
    "pleg podsync server": "CRIListStreaming",
    "pleg server": "PodAndContainerStatsFromCRI",
    "pleg podsync": "GRPCContainerProbeTLS H2CContainerProbe HugepageAwareEviction",
}
# Followed by a running service: no restart. `feature_gates` and `document` have rows of their own above.
FOLLOWED = frozenset(
    (
        *("config_source", "config_source_since"),
        *("document", "feature_gates", "given_flags", "logging_format", "log_flush_frequency"),
        *("log_info_buffer_size", "log_split_stream", "verbosity", "vmodule"),
    )
)
# Not changed while the agent runs: records, sockets and pods depend on them.
FIXED = frozenset(
    (
        *("docker", "embedded_containerd", "lock_file", "log_dir", "node_name", "root_dir", "run_dir"),
        *("run_once", "run_once_output"),
    )
)

_FLAGS = {
    "config_file": "--config",
    "external_cloud_provider": "--cloud-provider",
    "node_ips": "--node-ip",
    "node_name": "--hostname-override",
    "minimum_container_ttl": "--minimum-container-ttl-duration",
    "credential_providers": "--image-credential-provider-config",
    "credential_provider_bin_dir": "--image-credential-provider-bin-dir",
    "docker": "docker",
    "embedded_containerd": "embeddedContainerd",
    "device_plugin_wait": "devicePluginWait",
    "device_unhealthy_action": "deviceUnhealthyAction",
    "emulated_version": "emulatedVersion",
    "offline_pods": "offlinePods",
    "run_once_output": "--output",
    "tracing": "tracing",
    "log_split_stream": "logging.options",
    "log_info_buffer_size": "logging.options",
}
_NAMES = {field.name: field.metadata.get(KEY, "") for field in fields(EffectiveConfig)} | {"joins_cluster": ""}


class Change(Struct, frozen=True):
    """A setting that differs: as the operator knows it, the services that restart for it, what it costs the pods."""

    name: str  # a key of KubeletConfiguration, or a flag
    services: frozenset[str] = frozenset()
    fixed: bool = False  # it is not changed while the agent runs
    pods: PodCost = NO_COST


def _rows(table: Mapping[str, str]) -> dict[str, frozenset[str]]:
    return {name: frozenset(services.split()) for services, names in table.items() for name in names.split()}


FIELD_READERS, DOCUMENT_READERS, GATE_READERS = _rows(_FIELDS), _rows(_DOCUMENT), _rows(_GATES)


def changes(old: EffectiveConfig, new: EffectiveConfig) -> tuple[Change, ...]:
    """Return every setting that differs, sorted by name."""
    return tuple(sorted(_changes(old, new), key=lambda change: change.name))


def restarted_by(found: tuple[Change, ...]) -> frozenset[str]:
    """Return the services that restart for these changes."""
    return frozenset().union(*(change.services for change in found))


def _changes(old: EffectiveConfig, new: EffectiveConfig) -> Iterator[Change]:
    for field, readers in FIELD_READERS.items():
        if getattr(old, field) != getattr(new, field):
            # the embedded containerd has the driver in its own configuration
            fixed = field == "cgroup_driver" and new.embedded_containerd is not None
            cost = pod_cost(field, getattr(old, field), getattr(new, field))
            yield Change(_name(field), readers, fixed, cost)
    for field in FIXED:
        before, after = getattr(old, field), getattr(new, field)
        if before != after:
            yield Change(_name(field), fixed=True, pods=pod_cost(field, before, after))
    for key, readers in DOCUMENT_READERS.items():
        before, after = value_of(old.document, key), value_of(new.document, key)
        if before != after:
            yield Change(key, readers, pods=pod_cost(key, before, after))
    yield from _gate_changes(old.feature_gates, new.feature_gates)
    shown = {_NAMES[field] for field in FIELD_READERS} | DOCUMENT_READERS.keys() | {"featureGates"}
    for key in old.document.keys() | new.document.keys():
        if old.document.get(key) != new.document.get(key) and not any(_is_at(name, key) for name in shown):
            yield Change(key)


def _gate_changes(old: Mapping[str, bool], new: Mapping[str, bool]) -> Iterator[Change]:
    declared = declared_features(old) != declared_features(new)
    for gate in sorted(EVERY_GATE):
        before, after = enabled(old, gate), enabled(new, gate)
        if before != after:
            readers = GATE_READERS.get(gate, frozenset())
            name = f"featureGates.{gate}"
            cost = pod_cost(name, before, after)
            yield Change(name, readers | ({"status"} if declared else frozenset()), pods=cost)


def _name(field: str) -> str:
    if field in _FLAGS:
        return _FLAGS[field]
    return _NAMES[field] or f"--{field.replace('_', '-')}"


def _is_at(name: str, key: str) -> bool:
    """Return whether the dotted `name` is the top-level key, or below it."""
    return name == key or name.startswith(f"{key}.")
