"""Every key of KubeletConfiguration v1beta1 with its type, and the rules a value alone can break. Data only.

Reference config.md 2.2. Knows nothing of files, flags or defaults.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The type of one scalar, named as an operator would say it."""

    BOOL = "true or false"
    INT32 = "a 32-bit whole number"
    INT64 = "a 64-bit whole number"
    UINT32 = "a whole number from 0 to 4294967295"
    FLOAT64 = "a number"
    STRING = "a string"
    DURATION = 'a duration string such as "1m30s"'
    FLUSH = 'a duration string such as "5s", or whole nanoseconds'
    QUANTITY = 'a quantity such as "100Mi"'


@dataclass(frozen=True)
class ListOf:
    item: "Schema"


@dataclass(frozen=True)
class MapOf:
    item: "Schema"


Schema = Kind | ListOf | MapOf | dict[str, "Schema"]

B, I32, I64, S, D = Kind.BOOL, Kind.INT32, Kind.INT64, Kind.STRING, Kind.DURATION
STRINGS, STRING_MAP = ListOf(S), MapOf(S)
_SPLIT: Schema = {"splitStream": B, "infoBufferSize": Kind.QUANTITY}
_TAINT: Schema = {"key": S, "value": S, "effect": S, "timeAdded": S}

KUBELET_CONFIGURATION: dict[str, Schema] = {
    "apiVersion": S, "kind": S,
    # server, auth, TLS
    "enableServer": B, "address": S, "port": I32, "readOnlyPort": I32, "healthzPort": I32, "healthzBindAddress": S,
    "tlsCertFile": S, "tlsPrivateKeyFile": S, "tlsCipherSuites": STRINGS, "tlsCurvePreferences": ListOf(I32),
    "tlsMinVersion": S, "rotateCertificates": B, "serverTLSBootstrap": B,
    "authentication": {
        "x509": {"clientCAFile": S}, "webhook": {"enabled": B, "cacheTTL": D}, "anonymous": {"enabled": B},
    },
    "authorization": {"mode": S, "webhook": {"cacheAuthorizedTTL": D, "cacheUnauthorizedTTL": D}},
    "enableDebuggingHandlers": B, "enableContentionProfiling": B, "enableProfilingHandler": B,
    "enableDebugFlagsHandler": B, "enableSystemLogHandler": B, "enableSystemLogQuery": B,
    "streamingConnectionIdleTimeout": D, "showHiddenMetricsForVersion": S,
    # static pods, sync loop, node status
    "staticPodPath": S, "staticPodURL": S, "staticPodURLHeader": MapOf(STRINGS), "syncFrequency": D,
    "fileCheckFrequency": D, "httpCheckFrequency": D, "nodeStatusUpdateFrequency": D, "nodeStatusReportFrequency": D,
    "nodeLeaseDurationSeconds": I32, "nodeStatusMaxImages": I32, "registerNode": B,
    "registerWithTaints": ListOf(_TAINT), "providerID": S, "configMapAndSecretChangeDetectionStrategy": S,
    "runOnce": B, "enableControllerAttachDetach": B, "maxOpenFiles": I64, "oomScoreAdj": I32,
    # API client
    "contentType": S, "kubeAPIQPS": I32, "kubeAPIBurst": I32, "eventRecordQPS": I32, "eventBurst": I32,
    # runtime, images, logs
    "containerRuntimeEndpoint": S, "imageServiceEndpoint": S, "runtimeRequestTimeout": D, "serializeImagePulls": B,
    "maxParallelImagePulls": I32, "registryPullQPS": I32, "registryBurst": I32,
    "imagePullCredentialsVerificationPolicy": S, "preloadedImagesVerificationAllowlist": STRINGS,
    "imageMinimumGCAge": D, "imageMaximumGCAge": D, "imageGCHighThresholdPercent": I32,
    "imageGCLowThresholdPercent": I32, "containerLogMaxSize": S, "containerLogMaxFiles": I32,
    "containerLogMaxWorkers": I32, "containerLogMonitorInterval": D, "podLogsDir": S, "seccompDefault": B,
    "singleProcessOOMKill": B, "crashLoopBackOff": {"maxContainerRestartPeriod": D},
    "userNamespaces": {"idsPerPod": I64},
    # networking
    "clusterDomain": S, "clusterDNS": STRINGS, "resolvConf": S, "hairpinMode": S, "podCIDR": S,
    "makeIPTablesUtilChains": B, "iptablesMasqueradeBit": I32, "iptablesDropBit": I32,
    # cgroups, resources, managers
    "cgroupDriver": S, "cgroupRoot": S, "cgroupsPerQOS": B, "kubeletCgroups": S, "systemCgroups": S,
    "systemReserved": STRING_MAP, "kubeReserved": STRING_MAP, "systemReservedCgroup": S, "kubeReservedCgroup": S,
    "enforceNodeAllocatable": STRINGS, "reservedSystemCPUs": S,
    "reservedMemory": ListOf({"numaNode": I32, "limits": MapOf(Kind.QUANTITY)}), "cpuManagerPolicy": S,
    "cpuManagerPolicyOptions": STRING_MAP, "cpuManagerReconcilePeriod": D, "memoryManagerPolicy": S,
    "topologyManagerPolicy": S, "topologyManagerScope": S, "topologyManagerPolicyOptions": STRING_MAP,
    "qosReserved": STRING_MAP, "cpuCFSQuota": B, "cpuCFSQuotaPeriod": D, "maxPods": I32, "podsPerCore": I32,
    "podPidsLimit": I64, "failSwapOn": B, "failCgroupV1": B, "memorySwap": {"swapBehavior": S},
    "memoryThrottlingFactor": Kind.FLOAT64, "memoryReservationPolicy": S, "protectKernelDefaults": B,
    "localStorageCapacityIsolation": B, "kernelMemcgNotification": B, "allowedUnsafeSysctls": STRINGS,
    "volumePluginDir": S, "volumeStatsAggPeriod": D,
    # eviction, shutdown
    "evictionHard": STRING_MAP, "mergeDefaultEvictionSettings": B, "evictionSoft": STRING_MAP,
    "evictionSoftGracePeriod": STRING_MAP, "evictionMinimumReclaim": STRING_MAP,
    "evictionPressureTransitionPeriod": D, "evictionMaxPodGracePeriod": I32, "shutdownGracePeriod": D,
    "shutdownGracePeriodCriticalPods": D,
    "shutdownGracePeriodByPodPriority": ListOf({"priority": I32, "shutdownGracePeriodSeconds": I64}),
    # logging, tracing, gates
    "logging": {
        "format": S, "flushFrequency": Kind.FLUSH, "verbosity": Kind.UINT32,
        "vmodule": ListOf({"filePattern": S, "verbosity": Kind.UINT32}), "options": {"text": _SPLIT, "json": _SPLIT},
    },
    "tracing": {"endpoint": S, "samplingRatePerMillion": I32}, "featureGates": MapOf(B),
}  # fmt: skip

BULKHEAD_CONFIGURATION: dict[str, Schema] = {
    "apiVersion": S,
    "kind": S,
    "embeddedContainerd": {
        "enabled": B, "root": S, "state": S, "bridge": S, "podCIDR": S, "sandboxImage": S, "path": S, "cniBinDir": S,
    },
}  # fmt: skip

# Paths given relative to the directory of the configuration file (reference config.md 2.1).
RELATIVE_PATHS = (
    "staticPodPath", "authentication.x509.clientCAFile", "tlsCertFile", "tlsPrivateKeyFile", "resolvConf",
    "volumePluginDir", "podLogsDir",
)  # fmt: skip

RANGES: dict[str, tuple[float, float]] = {
    "port": (1, 65535), "readOnlyPort": (0, 65535), "healthzPort": (0, 65535), "nodeLeaseDurationSeconds": (1, 2**31),
    "nodeStatusMaxImages": (-1, 2**31), "maxOpenFiles": (1024, 2**63), "podPidsLimit": (-1, 2**63),
    "oomScoreAdj": (-1000, 1000),
    "kubeAPIQPS": (0, 2**31), "kubeAPIBurst": (0, 2**31), "eventRecordQPS": (0, 2**31), "eventBurst": (0, 2**31),
    "maxParallelImagePulls": (1, 2**31), "registryPullQPS": (0, 2**31), "registryBurst": (0, 2**31),
    "imageGCHighThresholdPercent": (0, 100), "imageGCLowThresholdPercent": (0, 100), "containerLogMaxFiles": (2, 2**31),
    "containerLogMaxWorkers": (1, 2**31), "iptablesMasqueradeBit": (0, 31), "iptablesDropBit": (0, 31),
    "maxPods": (0, 2**31), "podsPerCore": (0, 2**31), "logging.verbosity": (0, 2**31 - 1),
    "tracing.samplingRatePerMillion": (0, 1000000),
}  # fmt: skip

DURATION_RANGES: dict[str, tuple[float, float]] = {
    "nodeStatusUpdateFrequency": (0.1, 1e12), "nodeStatusReportFrequency": (0.1, 1e12),
    "authentication.webhook.cacheTTL": (0, 1e12), "authorization.webhook.cacheAuthorizedTTL": (0, 1e12),
    "authorization.webhook.cacheUnauthorizedTTL": (0, 1e12), "streamingConnectionIdleTimeout": (0, 1e12),
    "syncFrequency": (1, 1e12), "fileCheckFrequency": (1, 1e12), "runtimeRequestTimeout": (1, 1e12),
    "imageMinimumGCAge": (0, 1e12), "imageMaximumGCAge": (0, 1e12),
    "containerLogMonitorInterval": (3, 1e12), "crashLoopBackOff.maxContainerRestartPeriod": (1, 300),
    "cpuCFSQuotaPeriod": (0.001, 1),
}  # fmt: skip

CHOICES: dict[str, tuple[str, ...]] = {
    "authorization.mode": ("AlwaysAllow", "Webhook"), "cgroupDriver": ("cgroupfs", "systemd"),
    "configMapAndSecretChangeDetectionStrategy": ("Get", "Cache", "Watch"),
    "hairpinMode": ("promiscuous-bridge", "hairpin-veth", "none"), "cpuManagerPolicy": ("none", "static"),
    "memoryManagerPolicy": ("None", "Static"), "topologyManagerScope": ("container", "pod"),
    "topologyManagerPolicy": ("none", "best-effort", "restricted", "single-numa-node"),
    "memorySwap.swapBehavior": ("NoSwap", "LimitedSwap"), "memoryReservationPolicy": ("None", "TieredReservation"),
    "tlsMinVersion": ("VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"),
    "logging.format": ("text", "json"),
}  # fmt: skip

EVICTION_SIGNALS = (
    "memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
    "containerfs.available", "containerfs.inodesFree", "allocatableMemory.available", "pid.available",
)  # fmt: skip

# What some service acts on today; every other key given is accepted, checked, and named as being without effect.
WITH_EFFECT = frozenset(
    (
        "apiVersion", "kind", "enableServer", "address", "port", "readOnlyPort", "healthzPort", "healthzBindAddress",
        "tlsCertFile", "tlsPrivateKeyFile", "tlsCipherSuites", "tlsMinVersion", "authentication.x509.clientCAFile",
        "authentication.webhook.enabled", "authentication.anonymous.enabled", "authorization.mode",
        "enableDebuggingHandlers", "staticPodPath", "syncFrequency", "fileCheckFrequency",
        "nodeStatusUpdateFrequency", "maxOpenFiles", "oomScoreAdj", "containerRuntimeEndpoint", "imageServiceEndpoint",
        "runtimeRequestTimeout", "serializeImagePulls", "maxParallelImagePulls", "registryPullQPS", "registryBurst",
        "podLogsDir", "seccompDefault", "crashLoopBackOff.maxContainerRestartPeriod", "clusterDomain", "clusterDNS",
        "resolvConf", "cgroupDriver", "cgroupRoot", "cgroupsPerQOS", "cpuCFSQuota", "cpuCFSQuotaPeriod", "maxPods",
        "podPidsLimit", "evictionHard", "mergeDefaultEvictionSettings", "evictionPressureTransitionPeriod",
        "logging.verbosity", "runOnce", "nodeStatusReportFrequency", "nodeStatusMaxImages", "nodeLeaseDurationSeconds",
        "registerNode", "registerWithTaints", "providerID", "enableControllerAttachDetach", "podsPerCore",
        "systemReserved", "kubeReserved", "reservedSystemCPUs", "localStorageCapacityIsolation",
        "allowedUnsafeSysctls", "configMapAndSecretChangeDetectionStrategy", "kubeAPIQPS", "kubeAPIBurst",
        "eventRecordQPS", "eventBurst", "authentication.webhook.cacheTTL", "authorization.webhook.cacheAuthorizedTTL",
        "authorization.webhook.cacheUnauthorizedTTL", "streamingConnectionIdleTimeout",
    )
)  # fmt: skip

TLS_CIPHER_SUITES = frozenset(
    (
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
        "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
        "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
        "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
        "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_RSA_WITH_AES_128_CBC_SHA",
        "TLS_RSA_WITH_AES_128_CBC_SHA256",
        "TLS_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_RSA_WITH_AES_256_CBC_SHA",
        "TLS_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_RSA_WITH_RC4_128_SHA",
    )
)
