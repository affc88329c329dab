"""The kubelet's command line (reference config.md 1 and 3.2): which flags exist, and what they set.

Flags backed by a configuration field become values of that field; they win over the file (3.6). Knows no defaults.
click parses; the grammar of Go's flags (`--bool`, `-v=2`, `_` for `-`) is made fit for it first.
"""

from dataclasses import dataclass, field
from typing import Any

import click

from shared.config.document import cannot_stand, check_fields, closest
from shared.config.durations import parse_duration
from shared.config.fields import KUBELET_CONFIGURATION
from shared.config.findings import ConfigurationRefusedError, Findings
from shared.config.node_settings import parse_taints

# What a flag's text becomes. "map<" is the eviction grammar `signal<value,…`.
OWN_FLAGS = {
    "config": "string", "root-dir": "string", "hostname-override": "string", "kubeconfig": "string",
    "cert-dir": "string", "run-dir": "string", "log-dir": "string", "node-ip": "string", "node-labels": "string",
    "cloud-provider": "string",
}  # fmt: skip

FIELD_FLAGS: dict[str, tuple[str, str]] = {
    "address": ("address", "string"), "allowed-unsafe-sysctls": ("allowedUnsafeSysctls", "strings"),
    "anonymous-auth": ("authentication.anonymous.enabled", "bool"),
    "authentication-token-webhook": ("authentication.webhook.enabled", "bool"),
    "authentication-token-webhook-cache-ttl": ("authentication.webhook.cacheTTL", "duration"),
    "authorization-mode": ("authorization.mode", "string"), "cgroup-driver": ("cgroupDriver", "string"),
    "authorization-webhook-cache-authorized-ttl": ("authorization.webhook.cacheAuthorizedTTL", "duration"),
    "authorization-webhook-cache-unauthorized-ttl": ("authorization.webhook.cacheUnauthorizedTTL", "duration"),
    "cgroup-root": ("cgroupRoot", "string"), "cgroups-per-qos": ("cgroupsPerQOS", "bool"),
    "client-ca-file": ("authentication.x509.clientCAFile", "string"), "cluster-dns": ("clusterDNS", "strings"),
    "cluster-domain": ("clusterDomain", "string"), "container-log-max-files": ("containerLogMaxFiles", "int"),
    "container-log-max-size": ("containerLogMaxSize", "string"),
    "container-runtime-endpoint": ("containerRuntimeEndpoint", "string"), "cpu-cfs-quota": ("cpuCFSQuota", "bool"),
    "cpu-cfs-quota-period": ("cpuCFSQuotaPeriod", "duration"), "cpu-manager-policy": ("cpuManagerPolicy", "string"),
    "enable-controller-attach-detach": ("enableControllerAttachDetach", "bool"),
    "enable-debugging-handlers": ("enableDebuggingHandlers", "bool"), "enable-server": ("enableServer", "bool"),
    "enforce-node-allocatable": ("enforceNodeAllocatable", "strings"), "event-burst": ("eventBurst", "int"),
    "event-qps": ("eventRecordQPS", "int"), "eviction-hard": ("evictionHard", "map<"),
    "eviction-max-pod-grace-period": ("evictionMaxPodGracePeriod", "int"),
    "eviction-minimum-reclaim": ("evictionMinimumReclaim", "map"),
    "eviction-pressure-transition-period": ("evictionPressureTransitionPeriod", "duration"),
    "eviction-soft": ("evictionSoft", "map<"), "eviction-soft-grace-period": ("evictionSoftGracePeriod", "map"),
    "fail-cgroupv1": ("failCgroupV1", "bool"), "fail-swap-on": ("failSwapOn", "bool"),
    "feature-gates": ("featureGates", "gates"), "file-check-frequency": ("fileCheckFrequency", "duration"),
    "hairpin-mode": ("hairpinMode", "string"), "healthz-bind-address": ("healthzBindAddress", "string"),
    "healthz-port": ("healthzPort", "int"), "http-check-frequency": ("httpCheckFrequency", "duration"),
    "image-gc-high-threshold": ("imageGCHighThresholdPercent", "int"),
    "image-gc-low-threshold": ("imageGCLowThresholdPercent", "int"),
    "image-service-endpoint": ("imageServiceEndpoint", "string"), "kube-api-burst": ("kubeAPIBurst", "int"),
    "kube-api-qps": ("kubeAPIQPS", "int"), "kube-reserved": ("kubeReserved", "map"),
    "kube-reserved-cgroup": ("kubeReservedCgroup", "string"), "kubelet-cgroups": ("kubeletCgroups", "string"),
    "kube-api-content-type": ("contentType", "string"),
    "local-storage-capacity-isolation": ("localStorageCapacityIsolation", "bool"),
    "logging-format": ("logging.format", "string"), "make-iptables-util-chains": ("makeIPTablesUtilChains", "bool"),
    "manifest-url": ("staticPodURL", "string"), "max-open-files": ("maxOpenFiles", "int"),
    "max-pods": ("maxPods", "int"), "memory-manager-policy": ("memoryManagerPolicy", "string"),
    "minimum-image-ttl-duration": ("imageMinimumGCAge", "duration"),
    "node-status-max-images": ("nodeStatusMaxImages", "int"),
    "node-status-update-frequency": ("nodeStatusUpdateFrequency", "duration"), "oom-score-adj": ("oomScoreAdj", "int"),
    "pod-cidr": ("podCIDR", "string"), "pod-manifest-path": ("staticPodPath", "string"),
    "pod-max-pids": ("podPidsLimit", "int"), "pods-per-core": ("podsPerCore", "int"), "port": ("port", "int"),
    "protect-kernel-defaults": ("protectKernelDefaults", "bool"), "provider-id": ("providerID", "string"),
    "read-only-port": ("readOnlyPort", "int"), "register-node": ("registerNode", "bool"),
    "register-with-taints": ("registerWithTaints", "taints"),
    "registry-burst": ("registryBurst", "int"), "registry-qps": ("registryPullQPS", "int"),
    "reserved-cpus": ("reservedSystemCPUs", "string"), "resolv-conf": ("resolvConf", "string"),
    "rotate-certificates": ("rotateCertificates", "bool"), "rotate-server-certificates": ("serverTLSBootstrap", "bool"),
    "runonce": ("runOnce", "bool"), "runtime-request-timeout": ("runtimeRequestTimeout", "duration"),
    "seccomp-default": ("seccompDefault", "bool"), "serialize-image-pulls": ("serializeImagePulls", "bool"),
    "streaming-connection-idle-timeout": ("streamingConnectionIdleTimeout", "duration"),
    "sync-frequency": ("syncFrequency", "duration"), "system-cgroups": ("systemCgroups", "string"),
    "system-reserved": ("systemReserved", "map"), "system-reserved-cgroup": ("systemReservedCgroup", "string"),
    "tls-cert-file": ("tlsCertFile", "string"), "tls-cipher-suites": ("tlsCipherSuites", "strings"),
    "tls-min-version": ("tlsMinVersion", "string"), "tls-private-key-file": ("tlsPrivateKeyFile", "string"),
    "topology-manager-policy": ("topologyManagerPolicy", "string"),
    "topology-manager-scope": ("topologyManagerScope", "string"), "v": ("logging.verbosity", "int"),
    "volume-plugin-dir": ("volumePluginDir", "string"), "volume-stats-agg-period": ("volumeStatsAggPeriod", "duration"),
}  # fmt: skip

_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")


@dataclass
class Flags:
    """The parsed command line. `fields` maps dotted configuration keys to values, `places` the same keys to flags."""

    own: dict[str, str] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)


def parse_flags(arguments: list[str]) -> Flags:
    """Parse kubelet flags; the first error wins. Raises ConfigurationRefusedError with one line."""
    for number, argument in enumerate(arguments, start=1):
        if why := cannot_stand(argument):
            raise _refused(f"flags: argument {number} {why} (remove it)")
    kinds = OWN_FLAGS | {name: kind for name, (_, kind) in FIELD_FLAGS.items()}
    options: list[click.Parameter] = [
        click.Option([f"--{name}", *(["-v"] if name == "v" else []), _python_name(name)], multiple=True)
        for name in kinds
    ]
    options.append(click.Argument(["positional"], nargs=-1))
    command = click.Command("kubelet", params=options, add_help_option=False)
    try:
        given: dict[str, Any] = command.make_context("kubelet", _go_grammar(arguments, kinds)).params
    except click.NoSuchOption as error:
        name = (error.option_name or "").lstrip("-")
        close = closest(name, list(kinds))
        remedy = f"did you mean --{close}?" if close else "`bulkhead config flags` lists those that exist"
        raise _refused(f"unknown flag: {error.option_name} ({remedy})") from error
    except click.UsageError as error:
        raise _refused(f"{error.format_message().rstrip('.')} (give it as --flag=value)") from error
    if given["positional"]:
        raise _refused(f'unknown command "{given["positional"][0]}" (flags begin with --)')
    flags = Flags()
    for name, kind in kinds.items():
        texts: tuple[str, ...] = given[_python_name(name)]
        if not texts:
            continue
        if name in OWN_FLAGS:
            flags.own[name] = ",".join(texts) if name == "node-labels" else texts[-1]  # labels accumulate (1.1)
        elif not (name in ("address", "healthz-bind-address") and not texts[-1]):  # "" is silently ignored (1.3)
            key = FIELD_FLAGS[name][0]
            flags.fields[key] = _value(name, kind, texts)
            flags.places[key] = f"--{name}"
    _check_types(flags)
    return flags


def _python_name(name: str) -> str:
    return "flag_" + name.replace("-", "_")


def _go_grammar(arguments: list[str], kinds: dict[str, str]) -> list[str]:
    """`_` in names is `-`; a bool takes no following word; `-v=2` is `-v2`."""
    result: list[str] = []
    takes_word = False
    for index, argument in enumerate(arguments):
        if takes_word:
            result.append(argument)
            takes_word = False
        elif argument == "--":
            return result + arguments[index:]
        elif argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            name = name.replace("_", "-")
            if kinds.get(name) == "bool" and not equals:
                equals, value = "=", "true"
            takes_word = name in kinds and not equals
            result.append(f"--{name}{equals}{value}")
        elif argument.startswith("-v="):
            result.append("-v" + argument[3:])
        else:
            takes_word = argument == "-v"
            result.append(argument)
    return result


def _value(name: str, kind: str, texts: tuple[str, ...]) -> Any:
    text = texts[-1]
    try:
        match kind:
            case "bool":
                if text not in _TRUE + _FALSE:
                    raise ValueError("must be true or false")
                return text in _TRUE
            case "int":
                return int(text, 10 if text.lstrip("+-").isdecimal() else 0)
            case "duration":
                parse_duration(text)
                return text
            case "strings":
                return [item for part in texts for item in part.split(",") if item]
            case "taints":
                return parse_taints(text)
            case "map" | "map<" | "gates":
                pairs = _pairs(texts, "<" if kind == "map<" else "=")
                return (
                    {key: _value(name, "bool", (value,)) for key, value in pairs.items()} if kind == "gates" else pairs
                )
            case _:
                return text
    except ValueError as error:
        wanted = {"int": "must be a whole number", "duration": 'must be a duration such as "1m30s"'}.get(
            kind, str(error)
        )
        raise _refused(f'--{name}: invalid value "{text}" ({wanted})') from error


def _pairs(texts: tuple[str, ...], separator: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in (item.strip() for text in texts for item in text.split(",")):
        if item:
            key, found, value = item.partition(separator)
            if not found:
                raise ValueError(f"write it as name{separator}value,name{separator}value")
            pairs[key.strip()] = value.strip()
    return pairs


def _check_types(flags: Flags) -> None:
    """Hold the values to the same types as the file's; only number ranges can still be wrong."""
    findings = Findings(places=flags.places)
    nested: dict[str, Any] = {}
    for key, value in flags.fields.items():
        put_value(nested, key, value)
    check_fields(nested, KUBELET_CONFIGURATION, findings)
    findings.refuse_if_any()


def put_value(data: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in nested data; map and list values replace as a whole (reference config.md 3.6)."""
    *parents, last = key.split(".")
    for parent in parents:
        inner = data.get(parent)
        data[parent] = inner = inner if isinstance(inner, dict) else {}
        data = inner
    data[last] = value


def _refused(line: str) -> ConfigurationRefusedError:
    return ConfigurationRefusedError((line,))
