"""Mounts the volumes of pods: compares what pods need with what is mounted. No other process mounts or unmounts.

Purpose
    Sets up emptyDir, hostPath, local, nfs, secret, configMap, downwardAPI, projected, image, flexVolume and csi volumes
    for the pods that podsync has admitted, keeps the files of secret, configMap, downwardAPI and projected volumes up
    to date, tears volumes down once no pod needs them, and removes `pods/<uid>` of finished pods. A volume of another
    type is reported as an error. Each type is a plugin (`plugins/`); volumes that pods share may have a device below
    them. The claim of a volume is resolved first, to the source of its PersistentVolume; one that was resolved for a
    pod stays so while the pod is there, whatever becomes of the claim. Registers the plugins of the node, such as CSI
    drivers, whose sockets are below `plugins_registry`, drivers of dynamic resource allocation among them, and device
    plugins at `device-plugins/kubelet.sock`, whose devices it follows. Where a CSIDriver requires it, its driver is
    called again for the number of volumes that the node takes. A resource claim is to a pod what a volume is: its
    drivers prepare it before the containers start, and unprepare it after the last pod that uses it has ended; they
    also report the health of its devices. A claim whose CDI specifications are lost is prepared again.

Owns
    `volumes.mounted`, `volumes.in_use`, `plugins.registered`, `devices.resources`, `claims.prepared` and
    `events/volume`; on disk `pods/<uid>`, its `volumes/`, `plugins/` and `volume-subpaths/`; the shared mount
    propagation of the root directory; `bulkhead/volume/device_plugins.json` and `resource_claims.json` beside it; for a
    Go kubelet `dra_manager_state`, which follows from the latter.

Follows
    `pods.volumes`; `objects.changed`, to refresh files and to read claims again at once; `node.object`, for the labels
    that a PersistentVolume may require and for the volumes that are attached; `volumes.reported`, to mount an
    attachable volume only after the Node names it in volumesInUse; `node.resources`, for the size of a tmpfs and for
    files that show a resource.

Answers
    `PrepareSubpath` and `ReleaseSubpaths`: subpaths, bound for the start of a container. `GetVolumeUsage`: how full the
    nfs, local and csi volumes of a pod are. `GetPreferredAllocation`, `AllocateDevices` and `PreStartContainer`: the
    calls of a device plugin for a container; which devices it has is podsync's decision. It requests Secrets,
    ConfigMaps, claims, PersistentVolumes, CSIDrivers, VolumeAttachments, ClusterTrustBundles, ResourceClaims and
    PodCertificateRequests from sources, and service account tokens and the creation of PodCertificateRequests from
    status, which also writes the status of claims whose volumes are expanded.

Persists
    The sockets of device plugins, before their registration is answered. Which pods use which resource claims, and what
    their drivers have prepared: before each call and after it, and soon after that in the checkpoint of the Go kubelet.
    Else nothing of its own: the directories, their ready markers and the kernel's mount table are the record. Tokens
    and keys of certificates are in memory and in the tmpfs of their pods only, Secrets in the tmpfs only; both go to a
    CSI driver that requires them. `vol_data.json` names driver and handle of a CSI volume, beside its directory and
    beside its staging directory; that of a block volume is below `plugins/kubernetes.io/csi/volumeDevices`. It is
    written before the driver is called, and removed after the driver was called to take the volume away.

On restart
    The plugins find every volume below `pods/*/volumes` and every device; all are uncertain in the actual state of the
    world. What an admitted pod needs is set up again: each step finds its own work done, so nothing changes for running
    containers. What no pod needs is torn down, but only once `pods.volumes` is complete and not stale. Killed between
    mkdir, mount and marker: the marker is made last, so all steps run again. Killed in a teardown: the marker was
    removed first, so the teardown runs again. A volume of files that has been complete once in this boot is published
    as mounted at once: its content stays in use, and is brought up to date when sources and status answer; a token is
    requested again. After a boot of the machine, a configMap volume is mounted only once it was set up with the
    ConfigMap as it is now; the marker names the boot, and is written after the files. The directory of a
    PersistentVolume has its name, so that it is torn down without the API server; while a claim of its pod is not
    resolved, it is left as it is. Killed while it writes: `..data` shows the old files or the new ones, and the next
    run removes what is not shown. Files that an update replaced stay for a second, for readers that are about to open
    them; killed before their removal, they are removed after the next update or start. Killed between the mount of a
    device and that of a volume: the device is found, mounted again where a pod needs it, and unmounted where none does.
    A device whose pods could not all be read is left as it is: until then volumesInUse keeps what the Node has, and
    names are added. A record that cannot be read is written again where a pod needs the volume. Killed while a program
    runs: mount and umount of nfs, FlexVolume drivers, and mkfs, fsck and mount of a device go on, and the volume is an
    error until they have ended. A subpath that was bound and not released is found below `volume-subpaths`. It is
    unmounted before its volume, and a repeated request uses it. Killed while it removes `pods/<uid>`: the directory was
    first renamed to `pods/.removing-<uid>.<token>`, where it is found. Every plugin is called again.
    `plugins.registered` is complete once each socket found has registered its plugin, was refused, or has failed for
    about 4 minutes; until then a plugin that does not answer is not called gone. Device plugins are connected again
    through the record of their sockets; killed before a registration was saved, its plugin gets an error and registers
    again. `devices.resources` is complete once each of them has listed its devices, could not be reached, or has listed
    none for 10 s. Prepared resource claims are published as the record has them; what only the checkpoint has, another
    kubelet has prepared, and its drivers are called again. Killed between record and checkpoint: the checkpoint is
    written at the start. A driver whose call was cut short is called again, to prepare where a pod needs the claim,
    else to unprepare; so are, after a boot of the machine, all drivers of claims that pods need, because the CDI
    specifications are gone then. What no pod needs is unprepared, but only once `pods.volumes` is complete and not
    stale. A CSI call that was cut short is repeated, as CSI permits: a volume with a record is published again where a
    pod needs it, else unpublished. An expansion that was cut short is repeated: the claim's status shows the new size
    only after it.

Limits per pod
    Operations have threads by kind: work below the root directory, checks of hostPaths, devices, changes of a volume's
    group, removals, unmounts by drivers and servers, subpaths of hostPaths, other subpaths, releases of subpaths,
    listings of directories, `init` of FlexVolume drivers. A check of a hostPath that does not return (a network file
    system whose server is away) occupies one thread for its path; after 10 s it is an error of the pods that wait for
    it, and a trouble that names path and pod. Of the 64 threads at most 2 are on one mount, on "/" and mounts of local
    file systems 16: while they hang, further checks below that mount fail after 10 s, and those on other mounts
    proceed. The mount is found by the text of the path; a symlink counts for the mount that it is on. Subpaths of
    hostPaths have the same limits, with 4 s. Calls for one device take one thread, and those of one CSI or FlexVolume
    driver 4 of 16, each for at most 2 minutes. The change of the group of all its files (fsGroup) follows in a thread
    of its own, of 64, and holds up no call of the driver. Removals have 4 threads, of which a pod takes one, and take
    turns of 2 s, so that long ones delay others by seconds. One that does not return (an unmount) is a trouble and an
    error of its volume after 10 s; 16 such threads take no place of other removals. Unmounts by CSI drivers, and those
    of nfs and of local volumes, have 64 threads of their own with the same limits, of which one driver has at most 16
    and a pod one. Until an unmount returns, nothing else is done with that volume, so that it cannot unmount what was
    mounted after it; and nothing is mounted on its device, for any pod. An unexpected exception in the decision or in
    an operation for one pod is logged once, is a trouble that names the pod, and is tried again with a back-off.

When a UID is used again
    A static pod keeps its UID when its manifest is removed and returns, so a removal may be decided for one pod and
    performed when its successor exists. Each operation is therefore decided again when its turn comes, and a directory
    is removed by one rename. There remains a successor whose entry arrives between that decision and that rename, a
    read of the mount table apart. podsync publishes the entry before it makes a sandbox, and writes into `pods/<uid>`
    after that: only if this process were stopped there for as long as a sandbox takes could a file of the successor be
    removed. Then one CreateContainer fails and is repeated with a new file; running containers keep what they have
    mounted.
"""
