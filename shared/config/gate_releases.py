"""The feature gates of each Kubernetes release that `emulatedVersion` can name, as rows of what differs from those of
1.36 (config.md 3.7.1, 3.7.4). Data, and how a row is read.

Of 1.35 these are the gates that a kubelet reads: the other gates of 1.36 are accepted, and have no effect.
"""

from collections.abc import Mapping

from shared.config.gate_table import GATES, Gate, Stage
from shared.model.frozen_copy import replace
from shared.version import KUBERNETES_VERSION, RELEASES

# Each row: the gate, then `-` where the release does not have it, else A, B, GA, Dep for the stage (GONE: the release
# removed the gate and always has the feature), + or - for the default, L for a lock.
_1_35 = """
    AtomicFIFO -
    ClientsAllowCARotation -
    ClientsAllowTLSCacheGC -
    ComponentFlagz A-
    ComponentStatusz A-
    CRIListStreaming -
    CSIServiceAccountTokenSecrets B+
    CustomCPUCFSQuotaPeriod A-
    DefaultPodSysctls -
    DisableCPUQuotaWithExclusiveCPUs B+
    DisableNodeKubeProxyVersion Dep+
    DRAExtendedResource A-
    DRANodeAllocatableResources -
    DRAWorkloadResourceClaims -
    ExtendWebSocketsToKubelet -
    ExternalServiceAccountTokenSigner B+
    GitRepoVolumeDriver Dep-
    ImageVolume B+
    InOrderInformers B+
    InPlacePodLevelResourcesVerticalScaling A-
    InPlacePodVerticalScalingInitContainers -
    KubeletFineGrainedAuthz B+
    KubeletPodResourcesDynamicResources B+
    KubeletPodResourcesGet B+
    KubeletPSI B+
    MutableCSINodeAllocatableCount B+
    NativeHistograms -
    NodeDeclaredFeatures A-
    NodeLogQuery B+
    PLEGOnDemandRelist -
    PodLevelResourceManagers -
    PodsAPI -
    ProcMountType B+
    ReloadKubeletClientCAFile -
    ResourceHealthStatus A-
    ResourceHealthStatusMessage -
    RestartAllContainersOnContainerExits A-
    SELinuxChangePolicy B+
    SELinuxMountReadWriteOncePod B+
    UnlockWhileProcessingFIFO -
    UserNamespacesSupport B+
"""
_1_37 = """
    AllowUnsafeMalformedObjectDeletion B+
    APIServerTracing GONE+L
    APIServerWebhookAuthenticationToken A-
    AtomicWriteVolumeUserFields A-
    AuthorizeNodeWithSelectors GONE+L
    ClusterTrustBundle GA+
    ClusterTrustBundleProjection GA+
    CompositePodGroup A-
    ConcurrentWatchObjectDecode B+
    DefaultPodSysctls A-
    DisableCPUQuotaWithExclusiveCPUs GA+L
    DRADerivedAttributes A-
    DRADeviceCompatibilityGroups A-
    DRADeviceTaintRules GA+
    DRADeviceTaints GA+L
    DRAExtendedResource GA+L
    DRAOptionalNodeOperations A-
    DRAPartitionableDevicesType A-
    DRAPrioritizedList GA+L
    DRAResourceClaimDeviceStatus GA+L
    DRAWorkloadResourceClaims B-
    EmptyDirVolumeMode A-
    EtcdRangeStream B+
    ExcludeAdmissionWebhookVirtualResources B+
    GenericWorkload B-
    GRPCContainerProbeTLS A-
    H2CContainerProbe A-
    HostnameOverride GA+L
    HPAConfigurableTolerance GA+
    HPAScaleToZero B+
    HugepageAwareEviction B+
    InPlacePodVerticalScalingInitContainers GA+L
    InPlacePodVerticalScalingMemoryBackedVolumes A-
    InPlacePodVerticalScalingSchedulerPreemption A-
    KubeletInUserNamespace B+
    ManifestBasedAdmissionControlConfig B+
    MaxUnavailableStatefulSet B+
    MemoryQoS B+
    NativeHistograms B+
    NodeDeclaredFeatures GA+L
    NodeLifecycleConditions A-
    PersistentVolumeClaimUnusedSinceTime B+
    PLEGOnDemandRelist GA+
    PodAndContainerStatsFromCRI B-
    PodCertificateRequest GA+
    PodGroupPreemptionPolicy A-
    PodLevelResourceManagers B-
    PodLifecycleSleepAction GONE+L
    PodLifecycleSleepActionAllowZero GONE+L
    PodReadyToStartContainersCondition GA+L
    PodsAPI B+
    PreventStaticPodAPIReferences GONE+L
    RelaxedDNSSearchValidation GONE+L
    RelaxedServiceNameValidation GA+
    ResourceHealthStatus GA+
    SELinuxMount GA+
    SidecarContainers GONE+L
    StatefulSetRecreateStrategy A-
    StorageCapacityScoring B+
    VolumeBindMountOptions A-
    VolumeLimitScaling B+
"""
_STAGES = {"A": Stage.ALPHA, "B": Stage.BETA, "GA": Stage.GA, "Dep": Stage.DEPRECATED, "GONE": Stage.REMOVED}


def _gates_with(rows: str) -> dict[str, Gate]:
    gates = dict(GATES)
    for row in rows.strip().splitlines():
        name, state = row.split()
        if state == "-":
            gates.pop(name, None)
            continue
        locked, kept = state.endswith("L"), state.removesuffix("L")
        needs = GATES[name].needs if name in GATES else ()
        gates[name] = Gate(_STAGES[kept[:-1]], kept[-1] == "+", locked, needs)
    return {
        name: replace(gate, needs=tuple(need for need in gate.needs if need in gates)) for name, gate in gates.items()
    }


_GATES: dict[str, Mapping[str, Gate]] = {
    "1.35": _gates_with(_1_35),
    "1.36": GATES,
    "1.37": _gates_with(_1_37),
}
EVERY_GATE = frozenset(name for release in RELEASES for name in _GATES[release])


def gates_of(version: str) -> Mapping[str, Gate]:
    """Return every gate of one of RELEASES."""
    return _GATES[version]


def enabled(gates: Mapping[str, bool], name: str) -> bool:
    """Return whether the gate is on; `gates` are those that the configuration sets, or all of its release. What is
    absent is as in the default release, and off where that has no such gate."""
    gate = _GATES[KUBERNETES_VERSION].get(name)
    return gates.get(name, gate is not None and gate.default)


def first_release_of(name: str) -> str:
    """Return the first of RELEASES that has the gate, "" = none has it."""
    return next((version for version in RELEASES if name in _GATES[version]), "")
