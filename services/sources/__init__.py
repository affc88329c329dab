"""Which pods this node is to run: every source of pods merged into one desired set.

Purpose
    Reads the static pod path (a directory or one file) and publishes what is to run. A manifest that turns bad keeps
    its last good pod running for as long as the file exists; what is wrong is said in the log, in an event and in the
    beat.

Owns
    `pods.desired` (complete once every configured source has reported) and `events/sources`.

Follows
    Nothing on the bus; outside it the static pod path, by inotify and by a full look every `fileCheckFrequency`.

Answers
    Nothing yet. Reading the API server for the other services is going to live here.

Persists
    One record per manifest file under `<root dir>/sources/manifests/`: the pod last published from it, with the moment
    it was first seen. Written before the pod is published, removed after its removal is published.

On restart
    The records are read, then the path. An unchanged file gives the same pod with the same first-seen time, so that
    no sandbox changes; a file that is broken at that moment gives the pod of its record; a record whose file is gone is
    dropped, and its pod is simply not in the complete new set. Killed between record and publish: the record is ahead,
    the next look at the file publishes the same pod.
"""
