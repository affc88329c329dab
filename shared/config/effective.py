"""The effective configuration: what bootstrap decided from flags, file and defaults, and what every service reads.

bootstrap writes it as `<run dir>/config.json` (0600, atomic); services load it and follow the file.
Durations are seconds, sizes bytes. Only what some service uses stands here; the whole KubeletConfiguration as given is
in `document`. Defaults are the kubelet's (config.md 2.2).
"""

from dataclasses import dataclass, field
from typing import Any


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


@dataclass(frozen=True, kw_only=True)
class EffectiveConfig:
    """One node agent's settings after flags, file and defaults were merged and validated."""

    node_name: str
    root_dir: str  # absolute; default /var/lib/kubelet
    run_dir: str  # absolute, 0700; sockets, locks, manifest
    log_dir: str  # where each service writes <service>.log
    cert_dir: str
    kubeconfig: str = ""  # "" = standalone
    bootstrap_kubeconfig: str = ""  # credentials that serve to obtain the client certificate, and nothing else
    rotate_certificates: bool = False  # the client certificate is asked for, and renewed, by us
    server_tls_bootstrap: bool = False  # the serving certificate is
    config_file: str = ""  # the KubeletConfiguration file, "" = none given
    config_dir: str = ""  # the directory of drop-ins, "" = none given
    verbosity: int = 0
    logging_format: str = "text"  # text | json
    vmodule: tuple[tuple[str, int], ...] = ()  # pattern of a file's base name -> verbosity there
    log_flush_frequency: float = 5.0
    log_split_stream: bool = False  # info to standard output, the rest to standard error
    log_info_buffer_size: int = 0  # bytes
    feature_gates: dict[str, bool] = field(default_factory=dict)  # every gate the kubelet knows, settled
    lock_file: str = ""
    exit_on_lock_contention: bool = False
    oom_score_adj: int = -999
    max_open_files: int = 1000000

    static_pod_path: str = ""
    file_check_frequency: float = 20.0
    sync_frequency: float = 60.0
    pod_logs_dir: str = "/var/log/pods"
    container_log_max_size: int = 10 * 2**20  # bytes at which a log is rotated, negative = never
    container_log_max_files: int = 5
    container_log_max_workers: int = 1
    container_log_monitor_interval: float = 10.0
    container_runtime_endpoint: str = "unix:///run/containerd/containerd.sock"
    image_service_endpoint: str = ""  # "" = the runtime endpoint
    runtime_request_timeout: float = 120.0
    max_container_restart_period: float = 300.0
    serialize_image_pulls: bool = True
    max_parallel_image_pulls: int = 0  # 0 = not set
    registry_pull_qps: int = 5
    registry_burst: int = 10
    image_verification_policy: str = "NeverVerifyPreloadedImages"  # "" = records of pulls are neither kept nor heeded
    preloaded_images: tuple[str, ...] = ()  # names of images, or `<prefix>/*`, that need no verification
    credential_providers: tuple[CredentialProvider, ...] = ()
    credential_provider_bin_dir: str = ""
    cgroup_driver: str = "cgroupfs"  # cgroupfs | systemd
    cgroup_root: str = ""
    cgroups_per_qos: bool = True
    cpu_cfs_quota: bool = True
    cpu_cfs_quota_period: float = 0.1
    pod_pids_limit: int = -1
    max_pods: int = 110
    seccomp_default: bool = False
    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = ""
    resolv_conf: str = "/etc/resolv.conf"
    eviction_hard: dict[str, str] = field(default_factory=dict)  # signal -> threshold text
    eviction_pressure_transition_period: float = 300.0
    node_status_update_frequency: float = 10.0
    node_status_report_frequency: float = 300.0
    node_status_max_images: int = 50  # -1 = all
    node_lease_duration: float = 40.0
    register_node: bool = True
    register_with_taints: tuple[dict[str, str], ...] = ()  # key, value, effect
    node_labels: dict[str, str] = field(default_factory=dict)
    node_ips: tuple[str, ...] = ()  # as --node-ip gave them, also 0.0.0.0 and ::
    provider_id: str = ""
    external_cloud_provider: bool = False
    controller_attach_detach: bool = True
    pods_per_core: int = 0
    system_reserved: dict[str, str] = field(default_factory=dict)  # resource -> quantity text
    kube_reserved: dict[str, str] = field(default_factory=dict)
    enforce_node_allocatable: tuple[str, ...] = ("pods",)
    local_storage_capacity_isolation: bool = True
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    change_detection_strategy: str = "Watch"  # Watch | Cache | Get
    kube_api_qps: int = 50
    kube_api_burst: int = 100
    event_record_qps: int = 50  # 0 = the client default
    event_burst: int = 100

    enable_server: bool = True
    address: str = "0.0.0.0"
    port: int = 10250
    read_only_port: int = 0
    healthz_bind_address: str = "127.0.0.1"
    healthz_port: int = 10248
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    tls_min_version: str = ""
    tls_cipher_suites: tuple[str, ...] = ()
    tls_curve_preferences: tuple[int, ...] = ()
    client_ca_file: str = ""
    anonymous_auth: bool = False
    authorization_mode: str = "Webhook"  # AlwaysAllow | Webhook
    webhook_authentication: bool = True
    webhook_authentication_cache_ttl: float = 120.0
    webhook_authorized_cache_ttl: float = 300.0
    webhook_unauthorized_cache_ttl: float = 30.0
    streaming_connection_idle_timeout: float = 14400.0
    enable_debugging_handlers: bool = True

    embedded_containerd: EmbeddedContainerd | None = None
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def joins_cluster(self) -> bool:
        """There is an API server to talk to; otherwise the node runs alone."""
        return bool(self.kubeconfig)
