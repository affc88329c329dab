"""The effective configuration: what bootstrap decided from flags, file and defaults, and what every service reads.

bootstrap writes it as `<run dir>/config.json` (0600, atomic); services load it and follow the file.
Durations are seconds, sizes bytes. It holds only what a service uses; the whole KubeletConfiguration as given is in
`document`. Defaults are the kubelet's (config.md 2.2).
"""

from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from shared.model.config_source import ConfigSource
from shared.version import KUBERNETES_VERSION

KEY = "key"  # in the metadata of a field: the key of KubeletConfiguration that it has its value from


def _of(key: str, default: Any) -> Any:
    """Return a field with the value of this key, converted by `settings`; without a document it is `default`."""
    return field(default=default, metadata={KEY: key})


HANDLERS = ("runc", "crun")  # the programs that run containers of the embedded containerd, where they are installed


@dataclass(frozen=True, kw_only=True)
class EmbeddedContainerd:
    """The private containerd that supervisord runs where the configuration asks for it."""

    root: str
    state: str
    socket: str
    config_file: str
    cni_conf_dir: str
    cni_bin_dir: str = "/usr/lib/cni"
    bridge: str = "bulkhead0"
    pod_cidr: str = "10.89.0.0/16"
    sandbox_image: str = "localhost/bulkhead/pause:1"
    path: str = "containerd"  # the binary: a name looked up in PATH, or a path
    default_runtime: str = HANDLERS[0]
    registry_config_path: str = ""  # directory of `<registry>/hosts.toml`


class Docker(Struct, frozen=True, kw_only=True):
    """The shim that serves CRI in front of Docker where the configuration asks for it."""

    endpoint: str  # of Docker Engine's API
    socket: str  # where the shim serves CRI
    records_dir: str  # of the networks of sandboxes
    sandbox_image: str
    cni_bin_dirs: tuple[str, ...]
    cni_conf_dir: str
    pull_progress_seconds: float  # a pull without progress for so long is ended


@dataclass(frozen=True, kw_only=True)
class CredentialProvider:
    """A plugin that is asked for registry credentials (config.md 2.6)."""

    name: str  # file name of the plugin
    match_images: tuple[str, ...]
    default_cache_seconds: float
    api_version: str  # credentialprovider.kubelet.k8s.io/<version>
    args: tuple[str, ...] = field(default=(), repr=False)  # may hold secrets
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    token_audience: str = ""  # "" = it is asked without a service account
    token_cache_type: str = ""  # ServiceAccount | Token
    requires_account: bool = False
    required_annotations: tuple[str, ...] = ()
    optional_annotations: tuple[str, ...] = ()


DEFAULT_RECORD_AGE_SECONDS = 168 * 3600.0
DEFAULT_RECORD_BYTES = 16 << 20


class OfflinePods(Struct, frozen=True, kw_only=True):
    """The encrypted records from which pods start where the API server does not answer after a start."""

    max_age: float = DEFAULT_RECORD_AGE_SECONDS  # since the API server last confirmed the record
    max_bytes: int = DEFAULT_RECORD_BYTES  # of the pods and objects, and of the tokens, each before encryption


@dataclass(frozen=True, kw_only=True)
class EffectiveConfig:
    """One node agent's settings after flags, file and defaults were merged and validated."""

    node_name: str
    root_dir: str  # absolute; default /var/lib/kubelet
    run_dir: str  # absolute, 0700; sockets, locks, manifest
    log_dir: str  # where each service writes <service>.log
    cert_dir: str
    kubeconfig: str = ""  # "" = standalone
    bootstrap_kubeconfig: str = ""  # credentials for obtaining the client certificate only
    rotate_certificates: bool = _of("rotateCertificates", False)  # whether the client certificate is renewed
    server_tls_bootstrap: bool = _of("serverTLSBootstrap", False)  # the API server signs the serving certificate
    config_file: str = ""  # the KubeletConfiguration file, "" = none given
    config_dir: str = ""  # the directory of drop-ins, "" = none given
    dynamic_config_dir: str = ""  # the directory of configurations that the Node names, "" = they are not used
    config_source: ConfigSource | None = None  # the ConfigMap that replaces the file, None = the file is used
    config_source_since: float = 0.0  # CLOCK_MONOTONIC seconds when config_source came into force
    tracing: bool = False  # whether the configuration has the section `tracing`, which may be empty
    tracing_endpoint: str = _of("tracing.endpoint", "")  # "" = localhost:4317
    tracing_rate: int = _of("tracing.samplingRatePerMillion", 0)
    verbosity: int = _of("logging.verbosity", 0)
    logging_format: str = _of("logging.format", "text")  # text | json
    vmodule: tuple[tuple[str, int], ...] = _of("logging.vmodule", ())  # pattern of a file's base name, verbosity
    log_flush_frequency: float = _of("logging.flushFrequency", 5.0)
    log_split_stream: bool = False  # info to standard output, the rest to standard error
    log_info_buffer_size: int = 0  # bytes
    feature_gates: dict[str, bool] = field(default_factory=dict)  # every gate of the kubelet, with its value
    reload_config: bool = False  # an edit of the configuration is applied at once
    lock_file: str = ""
    exit_on_lock_contention: bool = False
    oom_score_adj: int = _of("oomScoreAdj", -999)
    max_open_files: int = _of("maxOpenFiles", 1000000)

    run_once: bool = _of("runOnce", False)  # the agent ends when the static pods have ended or are Ready
    run_once_output: str = "text"  # text | json: how `kubelet` prints the result
    static_pod_path: str = _of("staticPodPath", "")
    static_pod_url: str = field(default="", repr=False, metadata={KEY: "staticPodURL"})  # may hold a password
    static_pod_url_header: dict[str, tuple[str, ...]] = field(
        default_factory=dict, repr=False, metadata={KEY: "staticPodURLHeader"}
    )
    http_check_frequency: float = _of("httpCheckFrequency", 20.0)
    file_check_frequency: float = _of("fileCheckFrequency", 20.0)
    sync_frequency: float = _of("syncFrequency", 60.0)
    pod_logs_dir: str = _of("podLogsDir", "/var/log/pods")
    volume_plugin_dir: str = _of("volumePluginDir", "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
    volume_stats_agg_period: float = _of("volumeStatsAggPeriod", 60.0)
    container_log_max_size: int = _of("containerLogMaxSize", 10 * 2**20)  # bytes, negative = no limit
    container_log_max_files: int = _of("containerLogMaxFiles", 5)
    container_log_max_workers: int = _of("containerLogMaxWorkers", 1)
    container_log_monitor_interval: float = _of("containerLogMonitorInterval", 10.0)
    container_runtime_endpoint: str = _of("containerRuntimeEndpoint", "unix:///run/containerd/containerd.sock")
    image_service_endpoint: str = _of("imageServiceEndpoint", "")  # "" = the runtime endpoint
    runtime_request_timeout: float = _of("runtimeRequestTimeout", 120.0)
    max_container_restart_period: float = _of("crashLoopBackOff.maxContainerRestartPeriod", 300.0)
    serialize_image_pulls: bool = _of("serializeImagePulls", True)
    max_parallel_image_pulls: int = _of("maxParallelImagePulls", 0)  # 0 = not set
    registry_pull_qps: int = _of("registryPullQPS", 5)
    registry_burst: int = _of("registryBurst", 10)
    # "" = records of pulls are neither kept nor used
    image_verification_policy: str = _of("imagePullCredentialsVerificationPolicy", "NeverVerifyPreloadedImages")
    # names of images, or `<prefix>/*`, that need no verification
    preloaded_images: tuple[str, ...] = _of("preloadedImagesVerificationAllowlist", ())
    credential_providers: tuple[CredentialProvider, ...] = ()
    credential_provider_bin_dir: str = ""
    cgroup_driver: str = _of("cgroupDriver", "cgroupfs")  # cgroupfs | systemd
    cgroup_root: str = _of("cgroupRoot", "")
    cgroups_per_qos: bool = _of("cgroupsPerQOS", True)
    kubelet_cgroups: str = _of("kubeletCgroups", "")  # cgroup of the agent's processes; "" = they stay where they are
    system_cgroups: str = _of("systemCgroups", "")  # cgroup for processes of the root cgroup; "" = they stay there
    runtime_cgroups: str = ""  # cgroup of the container runtime; "" = not known
    # resource -> percentage, such as 50%; only memory
    qos_reserved: dict[str, str] = field(default_factory=dict, metadata={KEY: "qosReserved"})
    memory_throttling_factor: float = _of("memoryThrottlingFactor", 0.0)  # 0 = no container is throttled
    memory_reservation_policy: str = _of("memoryReservationPolicy", "None")
    cpu_cfs_quota: bool = _of("cpuCFSQuota", True)
    cpu_cfs_quota_period: float = _of("cpuCFSQuotaPeriod", 0.1)
    cpu_manager_policy: str = _of("cpuManagerPolicy", "none")  # none | static
    cpu_manager_policy_options: dict[str, str] = field(default_factory=dict, metadata={KEY: "cpuManagerPolicyOptions"})
    cpu_manager_reconcile_period: float = _of("cpuManagerReconcilePeriod", 10.0)
    reserved_system_cpus: str = _of("reservedSystemCPUs", "")  # such as 0-1; "" = as many as are reserved
    memory_manager_policy: str = _of("memoryManagerPolicy", "None")  # None | Static
    # numaNode, and limits: kind of memory -> quantity text
    reserved_memory: tuple[dict[str, Any], ...] = field(default=(), metadata={KEY: "reservedMemory"})
    topology_manager_policy: str = _of("topologyManagerPolicy", "none")
    topology_manager_scope: str = _of("topologyManagerScope", "container")  # container | pod
    topology_manager_policy_options: dict[str, str] = field(
        default_factory=dict, metadata={KEY: "topologyManagerPolicyOptions"}
    )
    pod_pids_limit: int = _of("podPidsLimit", -1)
    minimum_container_ttl: float = 0.0  # seconds since its creation until a dead container is garbage
    maximum_dead_containers_per_container: int = 1  # negative = no limit
    maximum_dead_containers: int = -1  # on the node; negative = no limit
    max_pods: int = _of("maxPods", 110)
    seccomp_default: bool = _of("seccompDefault", False)
    cluster_dns: tuple[str, ...] = _of("clusterDNS", ())
    cluster_domain: str = _of("clusterDomain", "")
    resolv_conf: str = _of("resolvConf", "/etc/resolv.conf")
    image_minimum_gc_age: float = _of("imageMinimumGCAge", 120.0)  # seconds
    image_maximum_gc_age: float = _of("imageMaximumGCAge", 0.0)  # seconds; 0 = without limit
    image_gc_high_threshold_percent: int = _of("imageGCHighThresholdPercent", 85)
    image_gc_low_threshold_percent: int = _of("imageGCLowThresholdPercent", 80)
    # signal -> threshold text
    eviction_hard: dict[str, str] = field(default_factory=dict, metadata={KEY: "evictionHard"})
    eviction_soft: dict[str, str] = field(default_factory=dict, metadata={KEY: "evictionSoft"})
    # signal -> seconds
    eviction_soft_grace_period: dict[str, float] = field(
        default_factory=dict, metadata={KEY: "evictionSoftGracePeriod"}
    )
    eviction_minimum_reclaim: dict[str, str] = field(default_factory=dict, metadata={KEY: "evictionMinimumReclaim"})
    shutdown_grace_period: float = _of("shutdownGracePeriod", 0.0)  # seconds
    shutdown_grace_period_critical_pods: float = _of("shutdownGracePeriodCriticalPods", 0.0)  # seconds of that period
    # each with `priority` and `shutdownGracePeriodSeconds`; they replace both periods
    shutdown_grace_period_by_pod_priority: tuple[dict[str, int], ...] = _of("shutdownGracePeriodByPodPriority", ())
    eviction_max_pod_grace_period: int = _of("evictionMaxPodGracePeriod", 0)  # seconds
    eviction_pressure_transition_period: float = _of("evictionPressureTransitionPeriod", 300.0)
    node_status_update_frequency: float = _of("nodeStatusUpdateFrequency", 10.0)
    node_status_report_frequency: float = _of("nodeStatusReportFrequency", 300.0)
    node_status_max_images: int = _of("nodeStatusMaxImages", 50)  # -1 = all
    node_lease_duration: float = _of("nodeLeaseDurationSeconds", 40.0)
    register_node: bool = _of("registerNode", True)
    register_with_taints: tuple[dict[str, str], ...] = _of("registerWithTaints", ())  # key, value, effect
    node_labels: dict[str, str] = field(default_factory=dict)
    node_ips: tuple[str, ...] = ()  # as --node-ip gave them, also 0.0.0.0 and ::
    provider_id: str = _of("providerID", "")
    external_cloud_provider: bool = False
    controller_attach_detach: bool = _of("enableControllerAttachDetach", True)
    pods_per_core: int = _of("podsPerCore", 0)
    # resource -> quantity text
    system_reserved: dict[str, str] = field(default_factory=dict, metadata={KEY: "systemReserved"})
    system_reserved_cgroup: str = _of("systemReservedCgroup", "")
    kube_reserved_cgroup: str = _of("kubeReservedCgroup", "")
    kube_reserved: dict[str, str] = field(default_factory=dict, metadata={KEY: "kubeReserved"})
    enforce_node_allocatable: tuple[str, ...] = _of("enforceNodeAllocatable", ("pods",))
    local_storage_capacity_isolation: bool = _of("localStorageCapacityIsolation", True)
    allowed_unsafe_sysctls: tuple[str, ...] = _of("allowedUnsafeSysctls", ())
    # normalised name -> value
    default_pod_sysctls: dict[str, str] = field(default_factory=dict, metadata={KEY: "defaultPodSysctls"})
    change_detection_strategy: str = _of("configMapAndSecretChangeDetectionStrategy", "Watch")  # Watch | Cache | Get
    kube_api_qps: int = _of("kubeAPIQPS", 50)
    kube_api_burst: int = _of("kubeAPIBurst", 100)
    event_record_qps: int = _of("eventRecordQPS", 50)  # 0 = the client default, since 1.37 no limit
    event_burst: int = _of("eventBurst", 100)

    node_page_port: int = 0  # on 127.0.0.1, without credentials; 0 = none
    enable_server: bool = _of("enableServer", True)
    address: str = _of("address", "0.0.0.0")
    port: int = _of("port", 10250)
    read_only_port: int = _of("readOnlyPort", 0)
    healthz_bind_address: str = _of("healthzBindAddress", "127.0.0.1")
    healthz_port: int = _of("healthzPort", 10248)
    tls_cert_file: str = _of("tlsCertFile", "")
    tls_private_key_file: str = _of("tlsPrivateKeyFile", "")
    tls_min_version: str = _of("tlsMinVersion", "")
    tls_cipher_suites: tuple[str, ...] = _of("tlsCipherSuites", ())
    tls_curve_preferences: tuple[int, ...] = _of("tlsCurvePreferences", ())
    client_ca_file: str = _of("authentication.x509.clientCAFile", "")
    anonymous_auth: bool = _of("authentication.anonymous.enabled", False)
    authorization_mode: str = _of("authorization.mode", "Webhook")  # AlwaysAllow | Webhook
    webhook_authentication: bool = _of("authentication.webhook.enabled", True)
    webhook_authentication_cache_ttl: float = _of("authentication.webhook.cacheTTL", 120.0)
    webhook_authorized_cache_ttl: float = _of("authorization.webhook.cacheAuthorizedTTL", 300.0)
    webhook_unauthorized_cache_ttl: float = _of("authorization.webhook.cacheUnauthorizedTTL", 30.0)
    make_iptables_util_chains: bool = _of("makeIPTablesUtilChains", True)
    pod_cidr: str = _of("podCIDR", "")  # for the runtime, where there is no cluster; "" = none
    protect_kernel_defaults: bool = _of("protectKernelDefaults", False)  # kernel settings are compared, not changed
    streaming_connection_idle_timeout: float = _of("streamingConnectionIdleTimeout", 14400.0)
    enable_debugging_handlers: bool = _of("enableDebuggingHandlers", True)
    enable_profiling_handler: bool = _of("enableProfilingHandler", True)
    enable_debug_flags_handler: bool = _of("enableDebugFlagsHandler", True)
    enable_system_log_handler: bool = _of("enableSystemLogHandler", True)
    enable_system_log_query: bool = _of("enableSystemLogQuery", False)

    embedded_containerd: EmbeddedContainerd | None = None
    docker: Docker | None = None  # None = no shim runs
    device_plugin_wait: float = 300.0  # seconds for which a new pod waits for a device plugin that is away
    device_unhealthy_action: str = "None"  # a `DeviceAction`
    emulated_version: str = KUBERNETES_VERSION  # one of RELEASES: the Kubernetes release whose behaviour is kept
    offline_pods: OfflinePods | None = None  # None = nothing of the API server's pods and Secrets is kept on disk
    document: dict[str, Any] = field(default_factory=dict)
    given_flags: dict[str, str] = field(default_factory=dict)  # flag -> its text; of secrets `CLASSIFIED`

    @property
    def joins_cluster(self) -> bool:
        """There is an API server to talk to; otherwise the node runs alone."""
        return bool(self.kubeconfig)
