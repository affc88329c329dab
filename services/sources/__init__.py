"""Decides which pods this node is to run, and reads everything that is read from the API server.

Purpose
    Merges the static pod path (a directory or one file), the static pod URL, the manifests applied to a node without a
    cluster and, in a cluster, the pods that the API server binds to this node, and publishes what is to run. Where a
    manifest becomes bad, or an object cannot be understood, the last good pod keeps running; the problem is reported
    in the log, in an event and in the beat. Keeps our Node, the mirror pods and the Services in sync by list and
    watch, and reads Secrets, ConfigMaps, PersistentVolumeClaims with their volumes and RuntimeClasses for the others.

Owns
    `pods.desired` (complete once every configured source has reported), `pods.api_status`, `pods.mirrors`,
    `node.object` (these three complete once the API server was listed, never on a node that runs alone),
    `objects.changed` (versions of the Secrets, ConfigMaps and claims that pods name and of the claims' volumes,
    never their content; of all CSIDrivers and ClusterTrustBundles once one was requested; complete once every pod
    of the API was published and each object watched then has a version or failed to be read, or ten seconds later)
    and `events/sources`.

Follows
    Nothing on the bus; outside it the static pod path, by inotify and by a full look every `fileCheckFrequency`, the
    URL, every `httpCheckFrequency`, and the API server: pods only after the node was read, one watch for each Secret
    or ConfigMap that pods name, for at most 400 of them (100 if the API server speaks no HTTP/2). The rest is read
    when it is first asked for, with one read for each pod in turn, and, if a volume shows it, again every half minute
    or more, at most with half of the rate limit; immutable objects take no watch and are not read again. Of a pod at
    most 2000 are read. A claim and its volume, which a node may not watch, are read every 0.25 to 2 s until they are
    bound, with at most 0.4 of the rate limit, then each sync period, with ten reads a second at most. Node and pods
    pass the rate limit first. Watches resume from their last version, also after an outage; a list follows only
    where that version expired or the API server's store went back. Lists are answered from the API server's cache, not
    older than what was seen; only that of our Node, the first one of a node's pods, and those that the cache cannot
    answer are quorum reads.

Answers
    `GetObject` by the configured change-detection strategy, only for what a pod of this node names, and `GetServices`.
    On a node that runs alone `GetObject` has only the ConfigMaps and Secrets that were applied to it, and there are no
    Services. There sources also serves HTTP on `manifests.sock` in the run directory, for root and its own user: it
    takes, lists and removes applied objects, and answers when the file is on disk.

Persists
    One record per manifest file under `<root dir>/sources/manifests/`: the pod last published from it, with the
    moment it was first seen and the path that its UID is made from: that of its first file, while its content
    stays. One record of the pods of the URL under `<root dir>/sources/url/`. One record for all API pods under
    `<root dir>/sources/pods/`: when each was first seen, and the resourceVersion up to which they were read when
    something of them was published last. What was applied is one file for each object under `<root
    dir>/bulkhead/manifests/`. Written before the pod is published; a file's is removed after its removal is
    published. Nothing else of the API server is kept on disk, least of all a Secret, unless `offlinePods` is
    enabled: then our Node, the API pods, and the answers about objects that they need, are in one encrypted record
    under `<root dir>/bulkhead/offline/pods/`, some seconds after they were published. Without the setting, what an
    earlier configuration has left there is removed.

On restart
    The records are read, then the path, the URL and the API server. The pods of the URL's record are published at
    once and stay until the URL gives a good document; without a record the set is complete only after that. An
    unchanged file or object gives the same pod with the same first-seen time, so that no sandbox changes; a file
    that is broken at that moment gives the pod of its record; a record whose file is gone is dropped, and its pod
    is not in the complete new set. While the API server cannot be reached, static pods are published, but no stream
    is complete, so no process ends a pod. With `offlinePods` and a record, an API server that has not answered for
    5 s, or for the Node alone, has the Node and the pods of the record published, marked as such, and requests
    answered from it, until it has listed the pods; no stream is complete before. Killed before a save: the record is
    older. Killed between
    record and publish: the record is ahead, the next look publishes the same pod. Killed after an applied file was
    written and before the answer: the file counts, and the repeated request changes nothing. Watches begin with a
    new list, that of the pods not older than the record: an API server that is behind is waited for, or read past
    its cache, and brings back neither a pod that is gone nor an older spec. Where the store was restored meanwhile,
    the Node's list or the refused version shows it, and the newest state counts.
"""
