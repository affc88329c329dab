"""Every feature gate of Kubernetes 1.36: stage, default, lock, dependencies (config.md 3.7), and whether a node
declares the feature in its status (node.md 1.6). Data only; `gate_releases` has what differs in other releases.
"""

from enum import StrEnum

from msgspec import Struct


class Stage(StrEnum):
    """How far along a feature is; `ALL` are the two switches for a whole stage."""

    ALPHA = "Alpha"
    BETA = "Beta"
    GA = "GA"
    DEPRECATED = "Deprecated"
    REMOVED = "Removed"  # the release has the feature, and no gate for it
    ALL = "All"


class Declared(StrEnum):
    """Whether `status.declaredFeatures` names a feature whose gate is on."""

    NEVER = ""  # no pod is kept from a node by it: the scheduler does not look for this feature
    NOT_BUILT = "not built"  # a node with the feature names it; this agent does not have it yet
    BUILT = "built"


class Gate(Struct, frozen=True):
    """One gate. A locked one cannot be set to anything but its default."""

    stage: Stage
    default: bool
    locked: bool = False
    needs: tuple[str, ...] = ()  # gates that must be on when this one is
    declared: Declared = Declared.NEVER


_ALPHA = """
    AllowUnsafeMalformedObjectDeletion APIServingWithRoutine CBORServingAndStorage ClientsAllowCBOR
    ClientsPreferCBOR CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook
    ContainerStopSignals ControllerManagerReleaseLeaderElectionLockOnExit CPUManagerPolicyAlphaOptions
    CRIListStreaming CrossNamespaceVolumeDataSource
    CSIVolumeHealth DRAListTypeAttributes DRANodeAllocatableResources DRAResourcePoolStatus
    DRAWorkloadResourceClaims EventedPLEG GangScheduling GenericWorkload HPAScaleToZero ImageVolumeWithDigest
    InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory KubeletInUserNamespace
    LoggingAlphaOptions ManifestBasedAdmissionControlConfig MemoryQoS MutablePVNodeAffinity NativeHistograms
    PersistentVolumeClaimUnusedSinceTime PodAndContainerStatsFromCRI PodLevelResourceManagers
    PodLogsQuerySplitStreams PodsAPI QOSReserved ReduceDefaultCrashLoopBackOffDecay RuntimeClassInImageCriApi
    ShardedListAndWatch StorageCapacityScoring StorageVersionAPI TaintTolerationComparisonOperators
    TopologyAwareWorkloadScheduling TopologyManagerPolicyAlphaOptions UserNamespacesHostNetworkSupport
    VolumeLimitScaling WindowsCPUAndMemoryAffinity WorkloadAwarePreemption WorkloadWithJob
"""
_BETA_ON = """
    AllowParsingUserUIDFromCertAuth APIResponseCompression APIServerIdentity AtomicFIFO
    AuthorizePodWebsocketUpgradeCreatePermission ClearingNominatedNodeNameAfterBinding ClientsAllowCARotation
    ClientsAllowTLSCacheGC ComponentFlagz ComponentStatusz ConstrainedImpersonation ContainerCheckpoint
    ContainerRestartRules ContextualLogging CPUManagerPolicyBetaOptions CRDObservedGenerationTracking
    DeclarativeValidationBeta DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency DRAConsumableCapacity
    DRADeviceBindingConditions DRADeviceTaints DRAExtendedResource DRAPartitionableDevices
    DRAResourceClaimDeviceStatus DRAResourceClaimGranularStatusAuthorization DRASchedulerFilterTimeout EnvFiles
    ExtendWebSocketsToKubelet GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority HostnameOverride
    HPAConfigurableTolerance InOrderInformersBatchProcess InPlacePodLevelResourcesVerticalScaling
    InPlacePodVerticalScalingInitContainers KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages
    KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders ListFromCacheSnapshot LoggingBetaOptions
    MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge
    MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs NodeDeclaredFeatures
    NominatedNodeNameForExpectation OpenAPIEnums OpportunisticBatching PLEGOnDemandRelist PodDeletionCost
    PodLevelResources PodReadyToStartContainersCondition PodTopologyLabelsAdmission PortForwardWebsockets
    PreventStaticPodAPIReferences RelaxedServiceNameValidation ReloadKubeletClientCAFile
    ReloadKubeletServerCertificateFile RemoteRequestHeaderUID ResourceHealthStatus ResourceHealthStatusMessage
    RestartAllContainersOnContainerExits RotateKubeletServerCertificate SchedulerAsyncPreemption
    SchedulerPopFromBackoffQ ServiceAccountNodeAudienceRestriction SizeBasedListCostEstimate
    StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet
    StaleControllerConsistencyStatefulSet StatefulSetSemanticRevisionComparison StorageVersionHash
    StrictIPCIDRValidation StructuredAuthenticationConfigurationEgressSelector
    StructuredAuthenticationConfigurationJWKSMetrics TokenRequestServiceAccountUIDValidation
    TopologyManagerPolicyBetaOptions TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation
    UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO WatchCacheInitializationPostStartHook WatchList
    WatchListClient WindowsGracefulNodeShutdown
"""
_BETA_OFF = """
    ClusterTrustBundle ClusterTrustBundleProjection ConcurrentWatchObjectDecode CoordinatedLeaderElection
    DRADeviceTaintRules LocalStorageCapacityIsolationFSQuotaMonitoring MaxUnavailableStatefulSet
    PodCertificateRequest SchedulerAsyncAPICalls SELinuxMount StorageVersionMigrator
"""
_GA = """
    AllowServiceExternalIPs CustomCPUCFSQuotaPeriod DRAPrioritizedList InformerResourceVersion
    MutatingAdmissionPolicy
"""
_GA_LOCKED = """
    AnonymousAuthConfigurableEndpoints AnyVolumeDataSource APIServerTracing AuthorizeNodeWithSelectors
    AuthorizeWithSelectors BtreeWatchCache ConsistentListFromCache CPUManagerPolicyOptions CRDValidationRatcheting
    CSIServiceAccountTokenSecrets CustomResourceFieldSelectors DeclarativeValidation DisableAllocatorDualWrite
    DRAAdminAccess DynamicResourceAllocation ExecProbeTimeout ExternalServiceAccountTokenSigner ImageMaximumGCAge
    ImageVolume InOrderInformers InPlacePodVerticalScaling JobBackoffLimitPerIndex JobManagedBy
    JobPodReplacementPolicy JobSuccessPolicy KubeletCgroupDriverFromCRI KubeletFineGrainedAuthz
    KubeletPodResourcesDynamicResources KubeletPodResourcesGet KubeletPSI KubeletTracing LogarithmicScaleDown
    MatchLabelKeysInPodAffinity MultiCIDRServiceAllocator MutableCSINodeAllocatableCount NFTablesProxyMode
    NodeInclusionPolicyInPodTopologySpread NodeLogQuery NodeSwap OrderedNamespaceDeletion PodLifecycleSleepAction
    PodLifecycleSleepActionAllowZero PodObservedGenerationTracking PodSchedulingReadiness
    PreferSameTrafficDistribution ProcMountType RecoverVolumeExpansionFailure RecursiveReadOnlyMounts
    RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation ResilientWatchCacheInitialization
    RetryGenerateName SchedulerQueueingHints SELinuxChangePolicy SELinuxMountReadWriteOncePod
    SeparateTaintEvictionController ServiceAccountTokenJTI ServiceAccountTokenNodeBinding
    ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo SidecarContainers
    StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration
    SupplementalGroupsPolicy SystemdWatchdog TopologyManagerPolicyOptions UserNamespacesSupport
    VolumeAttributesClass WinDSR WinOverlay
"""
_DEPRECATED_ON = """
    DisableCPUQuotaWithExclusiveCPUs KubeletPodResourcesListUseActivePods ServiceCIDRStatusFieldWiping
    StorageNamespaceIndex
"""
_DEPRECATED_OFF = """
    AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests ChangeContainerStatusOnKubeletRestart
    DeclarativeValidationTakeover KMSv1 KubeletRegistrationGetOnExistsOnly WindowsHostNetwork
"""
# Removed upstream after 1.23; the feature is built, with the default that it had last (config.md 4).
_KEPT_OFF = "DynamicKubeletConfig"
_DEPRECATED_ON_LOCKED = """
    AggregatedDiscoveryRemoveBetaType DisableNodeKubeProxyVersion
"""
_DEPRECATED_OFF_LOCKED = """
    AllowOverwriteTerminationGracePeriodSeconds GitRepoVolumeDriver SeparateCacheWatchRPC
"""

_NEEDS: dict[str, tuple[str, ...]] = {
    "AuthorizeNodeWithSelectors": ("AuthorizeWithSelectors",),
    "ClusterTrustBundleProjection": ("ClusterTrustBundle",),
    "DeclarativeValidationTakeover": ("DeclarativeValidation",),
    "DisableAllocatorDualWrite": ("MultiCIDRServiceAllocator",),
    "DRAAdminAccess": ("DynamicResourceAllocation",),
    "DRAConsumableCapacity": ("DynamicResourceAllocation",),
    "DRADeviceBindingConditions": (
        "DynamicResourceAllocation",
        "DRAResourceClaimDeviceStatus",
    ),
    "DRADeviceTaintRules": (
        "DynamicResourceAllocation",
        "DRADeviceTaints",
    ),
    "DRADeviceTaints": ("DynamicResourceAllocation",),
    "DRAExtendedResource": ("DynamicResourceAllocation",),
    "DRAListTypeAttributes": ("DynamicResourceAllocation",),
    "DRANodeAllocatableResources": ("DynamicResourceAllocation",),
    "DRAPartitionableDevices": ("DynamicResourceAllocation",),
    "DRAPrioritizedList": ("DynamicResourceAllocation",),
    "DRAResourceClaimGranularStatusAuthorization": (
        "DynamicResourceAllocation",
        "DRAResourceClaimDeviceStatus",
    ),
    "DRAResourcePoolStatus": ("DynamicResourceAllocation",),
    "DRASchedulerFilterTimeout": ("DynamicResourceAllocation",),
    "DRAWorkloadResourceClaims": (
        "DynamicResourceAllocation",
        "GenericWorkload",
    ),
    "ExtendWebSocketsToKubelet": ("NodeDeclaredFeatures",),
    "GangScheduling": ("GenericWorkload",),
    "GracefulNodeShutdownBasedOnPodPriority": ("GracefulNodeShutdown",),
    "ImageVolumeWithDigest": ("ImageVolume",),
    "InPlacePodLevelResourcesVerticalScaling": (
        "InPlacePodVerticalScaling",
        "PodLevelResources",
        "NodeDeclaredFeatures",
    ),
    "InPlacePodVerticalScalingExclusiveCPUs": ("InPlacePodVerticalScaling",),
    "InPlacePodVerticalScalingExclusiveMemory": ("InPlacePodVerticalScaling",),
    "InPlacePodVerticalScalingInitContainers": (
        "InPlacePodVerticalScaling",
        "NodeDeclaredFeatures",
    ),
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": ("MatchLabelKeysInPodTopologySpread",),
    "PodCertificateRequest": ("AuthorizeNodeWithSelectors",),
    "PodLevelResourceManagers": ("PodLevelResources",),
    "PodLifecycleSleepActionAllowZero": ("PodLifecycleSleepAction",),
    "ProcMountType": ("UserNamespacesSupport",),
    "ResourceHealthStatus": ("DynamicResourceAllocation",),
    "ResourceHealthStatusMessage": ("ResourceHealthStatus",),
    "RestartAllContainersOnContainerExits": (
        "ContainerRestartRules",
        "NodeDeclaredFeatures",
    ),
    "ServiceAccountTokenNodeBinding": ("ServiceAccountTokenNodeBindingValidation",),
    "StaleControllerConsistencyDaemonSet": ("AtomicFIFO",),
    "StaleControllerConsistencyJob": ("AtomicFIFO",),
    "StaleControllerConsistencyReplicaSet": ("AtomicFIFO",),
    "StaleControllerConsistencyStatefulSet": ("AtomicFIFO",),
    "StorageVersionAPI": ("APIServerIdentity",),
    "StructuredAuthenticationConfigurationEgressSelector": ("StructuredAuthenticationConfiguration",),
    "StructuredAuthenticationConfigurationJWKSMetrics": ("StructuredAuthenticationConfiguration",),
    "TopologyAwareWorkloadScheduling": ("GenericWorkload",),
    "UnknownVersionInteroperabilityProxy": ("APIServerIdentity",),
    "UserNamespacesHostNetworkSupport": (
        "UserNamespacesSupport",
        "NodeDeclaredFeatures",
    ),
    "WindowsGracefulNodeShutdown": ("GracefulNodeShutdown",),
    "WorkloadAwarePreemption": ("GangScheduling",),
    "WorkloadWithJob": ("GenericWorkload",),
}

DECLARED = {
    "ExtendWebSocketsToKubelet": Declared.BUILT,
    "InPlacePodLevelResourcesVerticalScaling": Declared.BUILT,
    "InPlacePodVerticalScalingInitContainers": Declared.BUILT,
    "InPlacePodVerticalScalingMemoryBackedVolumes": Declared.BUILT,
    "RestartAllContainersOnContainerExits": Declared.BUILT,
    "UserNamespacesHostNetworkSupport": Declared.NOT_BUILT,
}
BUILT_FEATURES = frozenset(name for name, state in DECLARED.items() if state is Declared.BUILT)


def _gates(names: str, stage: Stage, default: bool, locked: bool = False) -> dict[str, Gate]:
    return {
        name: Gate(stage, default, locked, _NEEDS.get(name, ()), DECLARED.get(name, Declared.NEVER))
        for name in names.split()
    }


ALL_ALPHA, ALL_BETA = "AllAlpha", "AllBeta"
GATES: dict[str, Gate] = {
    **_gates(f"{ALL_ALPHA} {ALL_BETA}", Stage.ALL, False),
    **_gates(_ALPHA, Stage.ALPHA, False),
    **_gates(_BETA_ON, Stage.BETA, True),
    **_gates(_BETA_OFF, Stage.BETA, False),
    **_gates(_GA, Stage.GA, True),
    **_gates(_GA_LOCKED, Stage.GA, True, locked=True),
    **_gates(_DEPRECATED_ON, Stage.DEPRECATED, True),
    **_gates(_DEPRECATED_OFF, Stage.DEPRECATED, False),
    **_gates(_KEPT_OFF, Stage.DEPRECATED, False),
    **_gates(_DEPRECATED_ON_LOCKED, Stage.DEPRECATED, True, locked=True),
    **_gates(_DEPRECATED_OFF_LOCKED, Stage.DEPRECATED, False, locked=True),
}


# Gates the kubelet of 1.20 knew and this one does not.
_REMOVED = """
    AppArmor BlockVolume BoundServiceAccountTokenVolume ConfigurableFSGroupPolicy CPUManager CRIContainerLogRotation
    CSIBlockVolume CSIInlineVolume CSIMigration CSIMigrationAWS CSIMigrationAWSComplete CSIMigrationAzureDisk
    CSIMigrationAzureDiskComplete CSIMigrationAzureFile CSIMigrationAzureFileComplete CSIMigrationGCE
    CSIMigrationGCEComplete CSIMigrationOpenStack CSIMigrationOpenStackComplete CSIMigrationvSphere
    CSIMigrationvSphereComplete CSINodeInfo CSIServiceAccountToken CSIVolumeFSGroupPolicy DevicePlugins
    DisableAcceleratorUsageMetrics DownwardAPIHugePages EphemeralContainers ExpandCSIVolumes
    ExpandInUsePersistentVolumes ExpandPersistentVolumes ExperimentalHostUserNamespaceDefaulting
    GenericEphemeralVolume HugePageStorageMediumSize HyperVContainer ImmutableEphemeralVolumes IPv6DualStack
    KubeletCredentialProviders KubeletPodResources LocalStorageCapacityIsolation NodeLease PodOverhead
    RotateKubeletClientCertificate RunAsGroup RuntimeClass SetHostnameAsFQDN SizeMemoryBackedVolumes StartupProbe
    StreamingProxyRedirects SupportNodePidsLimit SupportPodPidsLimit Sysctls TokenRequest TokenRequestProjection
    TopologyManager ValidateProxyRedirects VolumeSubpath WindowsGMSA
"""
REMOVED_GATES = frozenset(_REMOVED.split())
