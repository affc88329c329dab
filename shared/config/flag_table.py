"""The one list of the kubelet's flags: those of `field_table`'s keys, and those that have none (config.md 1).

Data only: what each flag is called, takes, defaults to and is for, and what became of those that are gone. Parser, help
text, FLAG lines, the page in docs/ and the tests read it. Knows nothing of how a text becomes a value.
"""

from typing import Any

from msgspec import Struct

from shared.config.field_table import FIELDS
from shared.config.fields import Field, FlagKind


class Flag(Struct, frozen=True):
    """One flag. `default` is a value as the parser gives it; `deprecated` the reason, "" = it is not."""

    name: str  # without dashes
    kind: FlagKind = FlagKind.STRING
    default: Any = ""
    doc: str = ""
    deprecated: str = ""
    key: str = ""  # the dotted key of KubeletConfiguration it sets, "" = none
    acts: bool = True  # it has an effect; otherwise it is parsed, shown and reported as without effect
    shorthand: str = ""
    choices: tuple[str, ...] = ()  # of a flag without a key
    secret: bool = False  # its value is never shown


class RemovedFlag(Struct, frozen=True):
    """A flag of earlier releases that is refused: since when, and what to do."""

    name: str
    release: str
    remedy: str

    @property
    def shown(self) -> str:
        """What follows `unknown flag`."""
        return f"removed in {self.release}: {self.remedy}"


_B, _INT, _I32, _D = FlagKind.BOOL, FlagKind.INT, FlagKind.INT32, FlagKind.DURATION
_GARBAGE = "dead containers go with their pods; set evictionHard in the file given with --config"
_GOES = "it will be removed without a replacement"
_CADVISOR = "removed in 1.37, whose kubelet refuses it; it belongs to cAdvisor, which is not in this agent: no effect"
_REMOTE = "the container runtime is always a remote one, and settles it itself; leave the flag out"

_SHIM = "removed in 1.24; set it in the section docker of the BulkheadConfiguration instead"

_OWN: tuple[Flag, ...] = (
    Flag("config", doc="KubeletConfiguration file; flags override it"),
    Flag("config-dir", doc="directory of drop-in files, *.conf, merged over the configuration file in order"),
    Flag("dynamic-config-dir", doc="directory of configurations that the Node names (spec.configSource)"),
    Flag("kubeconfig", doc="kubeconfig of the API server; without it the node has no API server"),
    Flag("bootstrap-kubeconfig", doc="kubeconfig with which the first client certificate is requested"),
    Flag("hostname-override", doc="name of the node, instead of the machine's host name"),
    Flag("node-ip", doc="address of the node, or an IPv4 and an IPv6 address separated by a comma"),
    Flag("cert-dir", default="/var/lib/kubelet/pki", doc="directory of issued and self-signed certificates"),
    Flag("cloud-provider", doc="external, or empty for none"),
    Flag("root-dir", default="/var/lib/kubelet", doc="directory of the agent's state, volumes and sockets"),
    Flag("node-labels", FlagKind.LABELS, {}, "labels the Node object is created with, as name=value,name=value"),
    Flag("runtime-cgroups", doc="cgroup of the container runtime, for statistics; the embedded containerd runs in it"),
    Flag("image-credential-provider-config", doc="file, or directory, naming the credential plugins"),
    Flag("image-credential-provider-bin-dir", doc="directory of the credential plugins for image pulls"),
    Flag("seccomp-default", _B, False, "switch seccompDefault on; overrides the configuration file"),
    Flag("lock-file", doc="file locked while the agent runs, so that a second one waits"),
    Flag("exit-on-lock-contention", _B, False, "exit when another process opens the lock file"),
    Flag("minimum-container-ttl-duration", _D, "0s", "how long a dead container is kept", _GARBAGE),
    Flag("maximum-dead-containers-per-container", _I32, 1, "dead instances kept per container", _GARBAGE),
    Flag("maximum-dead-containers", _I32, -1, "dead containers kept on the node", _GARBAGE),
    Flag("experimental-mounter-path", doc="binary that mounts instead of mount", deprecated=_GOES, acts=False),
    Flag(
        "experimental-allocatable-ignore-eviction", _B, False, "leave hard eviction out of Node Allocatable", _GOES,
        acts=False,
    ),
    Flag("help", _B, False, "print this text and exit", shorthand="h"),
    Flag("version", FlagKind.VERSION, "false", "print the version and exit; =raw prints all version information"),
    Flag("run-dir", doc="directory of sockets and locks; must equal supervisord's BULKHEAD_RUN_DIR"),
    Flag("output", default="text", choices=("text", "json"), doc="how --runonce prints its result: text or json"),
    Flag("reload-config", _B, False, "apply an edit of the configuration at once, as SIGHUP to bootstrap does"),
    Flag("node-page-port", _I32, 0, "port of the node page on 127.0.0.1, for every user of the machine; 0 = none"),
    Flag("log-dir", doc="directory where every service writes its log file"),
)  # fmt: skip

_CADVISORS: tuple[Flag, ...] = (
    Flag("housekeeping-interval", _D, "10s", "time between two reads of a container's statistics", acts=False),
    Flag("max-housekeeping-interval", _D, "15s", "longest time between two such reads", acts=False),
    Flag("application-metrics-count-limit", _INT, 100, "application metrics kept", _CADVISOR, acts=False),
    Flag(
        "boot-id-file", FlagKind.STRING, "/proc/sys/kernel/random/boot_id", "file with the boot id", _CADVISOR,
        acts=False,
    ),
    Flag(
        "container-hints", FlagKind.STRING, "/etc/cadvisor/container_hints.json", "file of hints", _CADVISOR,
        acts=False,
    ),
    Flag("containerd", FlagKind.STRING, "/run/containerd/containerd.sock", "its socket", _CADVISOR, acts=False),
    Flag("containerd-namespace", FlagKind.STRING, "k8s.io", "containerd's namespace", _CADVISOR, acts=False),
    Flag("enable-load-reader", _B, False, "measure the load of CPUs", _CADVISOR, acts=False),
    Flag("event-storage-age-limit", FlagKind.STRING, "default=0", "age of events kept", _CADVISOR, acts=False),
    Flag("event-storage-event-limit", FlagKind.STRING, "default=0", "number of events kept", _CADVISOR, acts=False),
    Flag("global-housekeeping-interval", _D, "1m0s", "time between two clean-ups", _CADVISOR, acts=False),
    Flag("log-cadvisor-usage", _B, False, "log cAdvisor's use of resources", _CADVISOR, acts=False),
    Flag(
        "machine-id-file", FlagKind.STRING, "/etc/machine-id,/var/lib/dbus/machine-id", "files with the machine id",
        _CADVISOR, acts=False,
    ),
    Flag("storage-driver-buffer-duration", _D, "1m0s", "time between two writes", _CADVISOR, acts=False),
    Flag("storage-driver-db", FlagKind.STRING, "cadvisor", "name of the database", _CADVISOR, acts=False),
    Flag("storage-driver-host", FlagKind.STRING, "localhost:8086", "host of the database", _CADVISOR, acts=False),
    Flag(
        "storage-driver-password", FlagKind.STRING, "root", "password at the database", _CADVISOR, acts=False,
        secret=True,
    ),
    Flag("storage-driver-secure", _B, False, "use TLS to the database", _CADVISOR, acts=False),
    Flag("storage-driver-table", FlagKind.STRING, "stats", "table of the database", _CADVISOR, acts=False),
    Flag("storage-driver-user", FlagKind.STRING, "root", "user at the database", _CADVISOR, acts=False),
)  # fmt: skip

# Gone since, but written by kubeadm into kubeadm-flags.env up to 1.26 and later, or without effect while they lasted.
_OUTLIVED: tuple[Flag, ...] = (
    Flag(
        "container-runtime", FlagKind.STRING, "remote", "remote, or docker: run the shim in front of Docker",
        "removed in 1.27; set docker.enabled in the BulkheadConfiguration instead", choices=("remote", "docker"),
    ),
    Flag("docker-endpoint", FlagKind.STRING, "unix:///var/run/docker.sock", "socket of Docker Engine's API", _SHIM),
    Flag("cni-bin-dir", FlagKind.STRING, "/opt/cni/bin", "directories of network plugins, for the shim", _SHIM),
    Flag("cni-conf-dir", FlagKind.STRING, "/etc/cni/net.d", "directory of networks, for the shim", _SHIM),
    Flag("image-pull-progress-deadline", _D, "1m0s", "a pull without progress for so long is ended", _SHIM),
    Flag(
        "network-plugin", FlagKind.STRING, "", "once the network plugin of Docker",
        "removed in 1.24; the container runtime does the networking", acts=False,
    ),
    Flag(
        "pod-infra-container-image", FlagKind.STRING, "", "image of pod sandboxes, for the shim in front of Docker",
        "removed in 1.35; other container runtimes name their own sandbox image",
    ),
    Flag("chaos-chance", FlagKind.FLOAT64, 0.0, "has no effect", "removed in 1.22; it had no effect", acts=False),
    Flag("redirect-container-streaming", _B, False, "has no effect", "removed in 1.22; it had no effect", acts=False),
)  # fmt: skip


def _of_field(field: Field) -> Flag:
    kind = field.flag_kind or FlagKind.STRING
    empty: Any = {FlagKind.STRINGS: [], FlagKind.TAINTS: [], FlagKind.RESERVED_MEMORY: [], FlagKind.VMODULE: []}
    default = field.flags_only_default
    if default is None:
        default = empty.get(kind, {})
    return Flag(
        field.flag,
        kind,
        list(default) if isinstance(default, tuple) else default,
        field.doc,
        f"set {field.key} in the file given with --config instead" if field.deprecated else "",
        field.key,
        field.acts,
        shorthand="v" if field.flag == "v" else "",
        secret=field.key == "staticPodURLHeader",
    )


FLAGS: dict[str, Flag] = {
    flag.name: flag
    for flag in sorted(
        (*_OWN, *_CADVISORS, *_OUTLIVED, *(_of_field(field) for field in FIELDS if field.flag)),
        key=lambda flag: flag.name,
    )
}  # every flag that can be given, by name, in alphabetical order

_LOGS = "log lines go to standard error, and to one file per service in --log-dir; leave it out"
_DOCKER = "the shim in front of Docker has a directory of its own; leave it out"
_REMOVED: tuple[tuple[str, str, str], ...] = (
    ("experimental-dockershim", "1.20", "set docker.enabled; <run-dir>/dockershim/dockershim.sock then serves CRI"),
    ("experimental-dockershim-root-directory", "1.24", _DOCKER),
    ("cni-cache-dir", "1.24", _REMOTE),
    ("network-plugin-mtu", "1.24", _REMOTE),
    ("non-masquerade-cidr", "1.24", _REMOTE),
    ("register-schedulable", "1.34", "use --register-with-taints=node.kubernetes.io/unschedulable:NoSchedule"),
    ("cloud-config", "1.34", "cloud providers run outside of the kubelet; use --cloud-provider=external"),
    ("keep-terminated-pod-volumes", "1.31", "volumes of ended pods are always unmounted; leave it out"),
    ("iptables-masquerade-bit", "1.31", "kube-proxy sets its own mark; leave it out"),
    ("iptables-drop-bit", "1.31", "kube-proxy sets its own mark; leave it out"),
    ("master-service-namespace", "1.27", "the API server's Service is in namespace default; leave it out"),
    ("enable-cadvisor-json-endpoints", "1.21", "read /stats/summary or /metrics/cadvisor; leave it out"),
    ("really-crash-for-testing", "1.24", "leave it out"),
    ("seccomp-profile-root", "1.23", "profiles are read from <root-dir>/seccomp; move them there"),
    ("experimental-bootstrap-kubeconfig", "1.23", "use --bootstrap-kubeconfig"),
    ("experimental-check-node-capabilities-before-mount", "1.23", "leave it out"),
    ("experimental-kernel-memcg-notification", "1.24", "use --kernel-memcg-notification"),
    ("experimental-logging-sanitization", "1.24", "leave it out"),
    *(
        (name, "1.26", _LOGS)
        for name in (
            "add-dir-header", "alsologtostderr", "log-backtrace-at", "log-file", "log-file-max-size", "logtostderr",
            "one-output", "skip-headers", "skip-log-headers", "stderrthreshold",
        )
    ),
    *(
        (f"docker{suffix}", "1.25", _DOCKER)
        for suffix in ("", "-env-metadata-whitelist", "-only", "-root", "-tls", "-tls-ca", "-tls-cert", "-tls-key")
    ),
    ("azure-container-registry-config", "1.30", "use --image-credential-provider-config with Azure's plugin"),
)  # fmt: skip

REMOVED_FLAGS: dict[str, RemovedFlag] = {
    name: RemovedFlag(name, release, remedy) for name, release, remedy in sorted(_REMOVED)
}

# Flags of the Windows build of the kubelet.
WINDOWS_FLAGS = ("windows-priorityclass", "windows-service")
