"""The mounted world: what pods want mounted against what is mounted, and the only process that mounts and unmounts.

Purpose
    Sets up emptyDir, hostPath, secret, configMap, downwardAPI and projected volumes for the pods podsync has taken on,
    keeps the files of the last four up to date, tears volumes down when they are not wanted any more, and removes
    `pods/<uid>` of pods that are finished. Other volume types are answered with an error.

Owns
    `volumes.mounted` and `events/volume`; on disk `pods/<uid>`, its `volumes/`, `plugins/` and `volume-subpaths/`;
    the shared mount propagation of the root directory.

Follows
    `pods.admitted`; `objects.changed`, to refresh at once; `node.resources`, for the size of a tmpfs and for files that
    name a limit.

Answers
    `PrepareSubpath` and `ReleaseSubpaths`: parts of volumes, bound for the start of a container. It asks sources for
    Secrets and ConfigMaps, and status for service account tokens.

Persists
    Nothing of its own: the directories, their ready markers and the kernel's mount table are the record. Tokens are in
    memory and in the pods' tmpfs only, Secrets only in the tmpfs.

On restart
    Every emptyDir below `pods/*/volumes` is taken into the actual state as uncertain. What an admitted pod wants is
    set up again (each step finds its own work done, so nothing changes for running containers); what no pod wants is
    torn down, but only once `pods.admitted` is complete and not stale. Killed between mkdir, mount and marker: the
    marker is last, so all of it runs again; killed in a teardown: the marker went first, so the teardown runs again.
    A volume of files that was complete once is told as mounted from the first moment: what it holds stays in use, and
    is brought up to date when sources and status answer; a token is simply asked for anew. Killed while it writes:
    `..data` shows the old files or the new ones, and the next run takes away what is not shown.
    What was bound for a container and not released is found below `volume-subpaths`, goes before its volume does, and
    is used again by a request that is repeated.
    Killed while it removes `pods/<uid>`: that went aside as `pods/.removing-<uid>.<token>` first and is found there.

What one pod may cost
    Operations have threads by kind: work below the root directory, looks at hostPaths, removals, subpaths of hostPaths,
    other subpaths, their release, looks at directories. A look at a hostPath that does not return (a network file
    system whose server is away) keeps one thread for its path; after 10 s it is an error of the pods that wait for it,
    and a trouble that names path and pod. Of the 64 threads a mount has at most two, "/" and mounts of local file
    systems 16: while they hang, further looks below that mount are refused after 10 s, and those elsewhere go on. The
    mount is found by the text of the path; a link counts at the mount it is in. Subpaths of hostPaths are bounded in
    the same way, after 4 s.
    A removal has one thread for each pod and goes on in turns of 2 s, so that four long ones delay the others by
    seconds. One that does not return (an unmount) is a trouble and an error of its volume after 10 s; 16 such threads
    take no place of other removals.
    An exception in the decision or in an operation for one pod is logged once, is a trouble that names the pod, and is
    tried again with a back-off.

When a UID comes back
    A static pod keeps its UID when its manifest goes and returns, so a removal may be decided for one life of a pod and
    performed in the next. Each operation therefore asks again when its turn comes, and a directory goes by one rename.
    What is left is a return whose word arrives between that question and that rename, a look at the mount table apart.
    podsync publishes it before it makes a sandbox, and writes into `pods/<uid>` after that; so only if this process
    stood still there for as long as a sandbox takes could a file of the new life go: one CreateContainer then fails
    and is repeated with a new file, and what runs keeps what it has mounted.
"""
