"""The field numbers of v1.Pod and what it contains, as Kubernetes 1.36 and 1.37 encode it in protobuf. Data.

Not in the table, and so not encoded: `managedFields`, which sources drops, and alpha fields whose numbers were not
published when this was written (docs/differences.md names them).
"""

# Each message: its fields as name=number:type. Types: none = string, i = int32, l = int64, b = bool, {} = a map to
# strings, {M} = a map to the message M; * = repeated; ^ = its fields stand in JSON beside those of the message.
MESSAGES = """
AWSElasticBlockStoreVolumeSource: volumeID=1 fsType=2 partition=3:i readOnly=4:b
Affinity: nodeAffinity=1:NodeAffinity podAffinity=2:PodAffinity podAntiAffinity=3:PodAntiAffinity
AppArmorProfile: type=1 localhostProfile=2
AzureDiskVolumeSource: diskName=1 diskURI=2 cachingMode=3 fsType=4 readOnly=5:b kind=6
AzureFileVolumeSource: secretName=1 shareName=2 readOnly=3:b
CSIVolumeSource: driver=1 readOnly=2:b fsType=3 volumeAttributes=4:{} nodePublishSecretRef=5:LocalObjectReference
Capabilities: add=1* drop=2*
CephFSVolumeSource: monitors=1* path=2 user=3 secretFile=4 secretRef=5:LocalObjectReference readOnly=6:b
CinderVolumeSource: volumeID=1 fsType=2 readOnly=3:b secretRef=4:LocalObjectReference
ClusterTrustBundleProjection: name=1 signerName=2 labelSelector=3:LabelSelector path=4 optional=5:b
ConfigMapEnvSource: localObjectReference=1:LocalObjectReference^ optional=2:b
ConfigMapKeySelector: localObjectReference=1:LocalObjectReference^ key=2 optional=3:b
ConfigMapProjection: localObjectReference=1:LocalObjectReference^ items=2:KeyToPath* optional=4:b
ConfigMapVolumeSource: localObjectReference=1:LocalObjectReference^ items=2:KeyToPath* defaultMode=3:i optional=4:b
Container: name=1 image=2 command=3* args=4* workingDir=5 ports=6:ContainerPort* env=7:EnvVar*
  resources=8:ResourceRequirements volumeMounts=9:VolumeMount* livenessProbe=10:Probe readinessProbe=11:Probe
  lifecycle=12:Lifecycle terminationMessagePath=13 imagePullPolicy=14 securityContext=15:SecurityContext stdin=16:b
  stdinOnce=17:b tty=18:b envFrom=19:EnvFromSource* terminationMessagePolicy=20 volumeDevices=21:VolumeDevice*
  startupProbe=22:Probe resizePolicy=23:ContainerResizePolicy* restartPolicy=24
  restartPolicyRules=25:ContainerRestartRule*
ContainerExtendedResourceRequest: containerName=1 resourceName=2 requestName=3
ContainerPort: name=1 hostPort=2:i containerPort=3:i protocol=4 hostIP=5
ContainerResizePolicy: resourceName=1 restartPolicy=2
ContainerRestartRule: action=1 exitCodes=2:ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes: operator=1 values=2:i*
ContainerState: waiting=1:ContainerStateWaiting running=2:ContainerStateRunning
  terminated=3:ContainerStateTerminated
ContainerStateRunning: startedAt=1:Time
ContainerStateTerminated: exitCode=1:i signal=2:i reason=3 message=4 startedAt=5:Time finishedAt=6:Time
  containerID=7
ContainerStateWaiting: reason=1 message=2
ContainerStatus: name=1 state=2:ContainerState lastState=3:ContainerState ready=4:b restartCount=5:i image=6
  imageID=7 containerID=8 started=9:b allocatedResources=10:{Quantity} resources=11:ResourceRequirements
  volumeMounts=12:VolumeMountStatus* user=13:ContainerUser allocatedResourcesStatus=14:ResourceStatus* stopSignal=15
ContainerUser: linux=1:LinuxContainerUser
DownwardAPIProjection: items=1:DownwardAPIVolumeFile*
DownwardAPIVolumeFile: path=1 fieldRef=2:ObjectFieldSelector resourceFieldRef=3:ResourceFieldSelector mode=4:i
DownwardAPIVolumeSource: items=1:DownwardAPIVolumeFile* defaultMode=2:i
EmptyDirVolumeSource: medium=1 sizeLimit=2:Quantity mode=3:i
EnvFromSource: prefix=1 configMapRef=2:ConfigMapEnvSource secretRef=3:SecretEnvSource
EnvVar: name=1 value=2 valueFrom=3:EnvVarSource
EnvVarSource: fieldRef=1:ObjectFieldSelector resourceFieldRef=2:ResourceFieldSelector
  configMapKeyRef=3:ConfigMapKeySelector secretKeyRef=4:SecretKeySelector fileKeyRef=5:FileKeySelector
EphemeralContainer: ephemeralContainerCommon=1:Container^ targetContainerName=2
EphemeralVolumeSource: volumeClaimTemplate=1:PersistentVolumeClaimTemplate
ExecAction: command=1*
FCVolumeSource: targetWWNs=1* lun=2:i fsType=3 readOnly=4:b wwids=5*
FileKeySelector: volumeName=1 path=2 key=3 optional=4:b
FlexVolumeSource: driver=1 fsType=2 secretRef=3:LocalObjectReference readOnly=4:b options=5:{}
FlockerVolumeSource: datasetName=1 datasetUUID=2
GCEPersistentDiskVolumeSource: pdName=1 fsType=2 partition=3:i readOnly=4:b
GRPCAction: port=1:i service=2
GitRepoVolumeSource: repository=1 revision=2 directory=3
GlusterfsVolumeSource: endpoints=1 path=2 readOnly=3:b
HTTPGetAction: path=1 port=2:IntOrString host=3 scheme=4 httpHeaders=5:HTTPHeader* protocol=6
HTTPHeader: name=1 value=2
HostAlias: ip=1 hostnames=2*
HostIP: ip=1
HostPathVolumeSource: path=1 type=2
ISCSIVolumeSource: targetPortal=1 iqn=2 lun=3:i iscsiInterface=4 fsType=5 readOnly=6:b portals=7*
  chapAuthDiscovery=8:b secretRef=10:LocalObjectReference chapAuthSession=11:b initiatorName=12
ImageVolumeSource: reference=1 pullPolicy=2
ImageVolumeStatus: imageRef=1
IntOrString: type=1:l intVal=2:i strVal=3
KeyToPath: key=1 path=2 mode=3:i
LabelSelector: matchLabels=1:{} matchExpressions=2:LabelSelectorRequirement*
LabelSelectorRequirement: key=1 operator=2 values=3*
Lifecycle: postStart=1:LifecycleHandler preStop=2:LifecycleHandler stopSignal=3
LifecycleHandler: exec=1:ExecAction httpGet=2:HTTPGetAction tcpSocket=3:TCPSocketAction sleep=4:SleepAction
LinuxContainerUser: uid=1:l gid=2:l supplementalGroups=3:l*
LocalObjectReference: name=1
NFSVolumeSource: server=1 path=2 readOnly=3:b
NodeAffinity: requiredDuringSchedulingIgnoredDuringExecution=1:NodeSelector
  preferredDuringSchedulingIgnoredDuringExecution=2:PreferredSchedulingTerm*
NodeSelector: nodeSelectorTerms=1:NodeSelectorTerm*
NodeSelectorRequirement: key=1 operator=2 values=3*
NodeSelectorTerm: matchExpressions=1:NodeSelectorRequirement* matchFields=2:NodeSelectorRequirement*
ObjectFieldSelector: apiVersion=1 fieldPath=2
ObjectMeta: name=1 generateName=2 namespace=3 selfLink=4 uid=5 resourceVersion=6 generation=7:l
  creationTimestamp=8:Time deletionTimestamp=9:Time deletionGracePeriodSeconds=10:l labels=11:{} annotations=12:{}
  ownerReferences=13:OwnerReference* finalizers=14*
OwnerReference: kind=1 name=3 uid=4 apiVersion=5 controller=6:b blockOwnerDeletion=7:b
PersistentVolumeClaimSpec: accessModes=1* resources=2:VolumeResourceRequirements volumeName=3
  selector=4:LabelSelector storageClassName=5 volumeMode=6 dataSource=7:TypedLocalObjectReference
  dataSourceRef=8:TypedObjectReference volumeAttributesClassName=9
PersistentVolumeClaimTemplate: metadata=1:ObjectMeta spec=2:PersistentVolumeClaimSpec
PersistentVolumeClaimVolumeSource: claimName=1 readOnly=2:b
PhotonPersistentDiskVolumeSource: pdID=1 fsType=2
Pod: metadata=1:ObjectMeta spec=2:PodSpec status=3:PodStatus
PodAffinity: requiredDuringSchedulingIgnoredDuringExecution=1:PodAffinityTerm*
  preferredDuringSchedulingIgnoredDuringExecution=2:WeightedPodAffinityTerm*
PodAffinityTerm: labelSelector=1:LabelSelector namespaces=2* topologyKey=3 namespaceSelector=4:LabelSelector
  matchLabelKeys=5* mismatchLabelKeys=6*
PodAntiAffinity: requiredDuringSchedulingIgnoredDuringExecution=1:PodAffinityTerm*
  preferredDuringSchedulingIgnoredDuringExecution=2:WeightedPodAffinityTerm*
PodCertificateProjection: signerName=1 keyType=2 maxExpirationSeconds=3:i credentialBundlePath=4 keyPath=5
  certificateChainPath=6 userAnnotations=7:{}
PodCondition: type=1 status=2 lastProbeTime=3:Time lastTransitionTime=4:Time reason=5 message=6
  observedGeneration=7:l
PodDNSConfig: nameservers=1* searches=2* options=3:PodDNSConfigOption*
PodDNSConfigOption: name=1 value=2
PodExtendedResourceClaimStatus: requestMappings=1:ContainerExtendedResourceRequest* resourceClaimName=2
PodIP: ip=1
PodOS: name=1
PodReadinessGate: conditionType=1
PodResourceClaim: name=1 resourceClaimName=3 resourceClaimTemplateName=4
PodResourceClaimStatus: name=1 resourceClaimName=2
PodSchedulingGate: name=1
PodSecurityContext: seLinuxOptions=1:SELinuxOptions runAsUser=2:l runAsNonRoot=3:b supplementalGroups=4:l*
  fsGroup=5:l runAsGroup=6:l sysctls=7:Sysctl* windowsOptions=8:WindowsSecurityContextOptions fsGroupChangePolicy=9
  seccompProfile=10:SeccompProfile appArmorProfile=11:AppArmorProfile supplementalGroupsPolicy=12
  seLinuxChangePolicy=13
PodSpec: volumes=1:Volume* containers=2:Container* restartPolicy=3 terminationGracePeriodSeconds=4:l
  activeDeadlineSeconds=5:l dnsPolicy=6 nodeSelector=7:{} serviceAccountName=8 serviceAccount=9 nodeName=10
  hostNetwork=11:b hostPID=12:b hostIPC=13:b securityContext=14:PodSecurityContext
  imagePullSecrets=15:LocalObjectReference* hostname=16 subdomain=17 affinity=18:Affinity schedulerName=19
  initContainers=20:Container* automountServiceAccountToken=21:b tolerations=22:Toleration*
  hostAliases=23:HostAlias* priorityClassName=24 priority=25:i dnsConfig=26:PodDNSConfig shareProcessNamespace=27:b
  readinessGates=28:PodReadinessGate* runtimeClassName=29 enableServiceLinks=30:b preemptionPolicy=31
  overhead=32:{Quantity} topologySpreadConstraints=33:TopologySpreadConstraint*
  ephemeralContainers=34:EphemeralContainer* setHostnameAsFQDN=35:b os=36:PodOS hostUsers=37:b
  schedulingGates=38:PodSchedulingGate* resourceClaims=39:PodResourceClaim* resources=40:ResourceRequirements
  hostnameOverride=41
PodStatus: phase=1 conditions=2:PodCondition* message=3 reason=4 hostIP=5 podIP=6 startTime=7:Time
  containerStatuses=8:ContainerStatus* qosClass=9 initContainerStatuses=10:ContainerStatus* nominatedNodeName=11
  podIPs=12:PodIP* ephemeralContainerStatuses=13:ContainerStatus* resize=14
  resourceClaimStatuses=15:PodResourceClaimStatus* hostIPs=16:HostIP* observedGeneration=17:l
  extendedResourceClaimStatus=18:PodExtendedResourceClaimStatus allocatedResources=19:{Quantity}
  resources=20:ResourceRequirements
PortworxVolumeSource: volumeID=1 fsType=2 readOnly=3:b
PreferredSchedulingTerm: weight=1:i preference=2:NodeSelectorTerm
Probe: handler=1:ProbeHandler^ initialDelaySeconds=2:i timeoutSeconds=3:i periodSeconds=4:i successThreshold=5:i
  failureThreshold=6:i terminationGracePeriodSeconds=7:l
ProbeHandler: exec=1:ExecAction httpGet=2:HTTPGetAction tcpSocket=3:TCPSocketAction grpc=4:GRPCAction
ProjectedVolumeSource: sources=1:VolumeProjection* defaultMode=2:i
Quantity: string=1
QuobyteVolumeSource: registry=1 volume=2 readOnly=3:b user=4 group=5 tenant=6
RBDVolumeSource: monitors=1* image=2 fsType=3 pool=4 user=5 keyring=6 secretRef=7:LocalObjectReference readOnly=8:b
ResourceClaim: name=1 request=2
ResourceFieldSelector: containerName=1 resource=2 divisor=3:Quantity
ResourceHealth: resourceID=1 health=2 message=6
ResourceRequirements: limits=1:{Quantity} requests=2:{Quantity} claims=3:ResourceClaim*
ResourceStatus: name=1 resources=2:ResourceHealth*
SELinuxOptions: user=1 role=2 type=3 level=4
ScaleIOVolumeSource: gateway=1 system=2 secretRef=3:LocalObjectReference sslEnabled=4:b protectionDomain=5
  storagePool=6 storageMode=7 volumeName=8 fsType=9 readOnly=10:b
SeccompProfile: type=1 localhostProfile=2
SecretEnvSource: localObjectReference=1:LocalObjectReference^ optional=2:b
SecretKeySelector: localObjectReference=1:LocalObjectReference^ key=2 optional=3:b
SecretProjection: localObjectReference=1:LocalObjectReference^ items=2:KeyToPath* optional=4:b
SecretVolumeSource: secretName=1 items=2:KeyToPath* defaultMode=3:i optional=4:b
SecurityContext: capabilities=1:Capabilities privileged=2:b seLinuxOptions=3:SELinuxOptions runAsUser=4:l
  runAsNonRoot=5:b readOnlyRootFilesystem=6:b allowPrivilegeEscalation=7:b runAsGroup=8:l procMount=9
  windowsOptions=10:WindowsSecurityContextOptions seccompProfile=11:SeccompProfile
  appArmorProfile=12:AppArmorProfile
ServiceAccountTokenProjection: audience=1 expirationSeconds=2:l path=3
SleepAction: seconds=1:l
StorageOSVolumeSource: volumeName=1 volumeNamespace=2 fsType=3 readOnly=4:b secretRef=5:LocalObjectReference
Sysctl: name=1 value=2
TCPSocketAction: port=1:IntOrString host=2
Time: seconds=1:l nanos=2:i
Toleration: key=1 operator=2 value=3 effect=4 tolerationSeconds=5:l
TopologySpreadConstraint: maxSkew=1:i topologyKey=2 whenUnsatisfiable=3 labelSelector=4:LabelSelector minDomains=5:i
  nodeAffinityPolicy=6 nodeTaintsPolicy=7 matchLabelKeys=8*
TypedLocalObjectReference: apiGroup=1 kind=2 name=3
TypedObjectReference: apiGroup=1 kind=2 name=3 namespace=4
Volume: name=1 volumeSource=2:VolumeSource^
VolumeDevice: name=1 devicePath=2
VolumeMount: name=1 readOnly=2:b mountPath=3 subPath=4 mountPropagation=5 subPathExpr=6 recursiveReadOnly=7
  bindMountOptions=8*
VolumeMountStatus: name=1 mountPath=2 readOnly=3:b recursiveReadOnly=4 volumeStatus=5:VolumeStatus
VolumeProjection: secret=1:SecretProjection downwardAPI=2:DownwardAPIProjection configMap=3:ConfigMapProjection
  serviceAccountToken=4:ServiceAccountTokenProjection clusterTrustBundle=5:ClusterTrustBundleProjection
  podCertificate=6:PodCertificateProjection
VolumeResourceRequirements: limits=1:{Quantity} requests=2:{Quantity}
VolumeSource: hostPath=1:HostPathVolumeSource emptyDir=2:EmptyDirVolumeSource
  gcePersistentDisk=3:GCEPersistentDiskVolumeSource awsElasticBlockStore=4:AWSElasticBlockStoreVolumeSource
  gitRepo=5:GitRepoVolumeSource secret=6:SecretVolumeSource nfs=7:NFSVolumeSource iscsi=8:ISCSIVolumeSource
  glusterfs=9:GlusterfsVolumeSource persistentVolumeClaim=10:PersistentVolumeClaimVolumeSource
  rbd=11:RBDVolumeSource flexVolume=12:FlexVolumeSource cinder=13:CinderVolumeSource cephfs=14:CephFSVolumeSource
  flocker=15:FlockerVolumeSource downwardAPI=16:DownwardAPIVolumeSource fc=17:FCVolumeSource
  azureFile=18:AzureFileVolumeSource configMap=19:ConfigMapVolumeSource
  vsphereVolume=20:VsphereVirtualDiskVolumeSource quobyte=21:QuobyteVolumeSource azureDisk=22:AzureDiskVolumeSource
  photonPersistentDisk=23:PhotonPersistentDiskVolumeSource portworxVolume=24:PortworxVolumeSource
  scaleIO=25:ScaleIOVolumeSource projected=26:ProjectedVolumeSource storageos=27:StorageOSVolumeSource
  csi=28:CSIVolumeSource ephemeral=29:EphemeralVolumeSource image=30:ImageVolumeSource
VolumeStatus: image=1:ImageVolumeStatus
VsphereVirtualDiskVolumeSource: volumePath=1 fsType=2 storagePolicyName=3 storagePolicyID=4
WeightedPodAffinityTerm: weight=1:i podAffinityTerm=2:PodAffinityTerm
WindowsSecurityContextOptions: gmsaCredentialSpecName=1 gmsaCredentialSpec=2 runAsUserName=3 hostProcess=4:b
"""
