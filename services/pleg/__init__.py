"""What the container runtime and the machine are doing: observes, publishes, changes nothing.

Purpose
    Keeps one observation per pod that the runtime has, newer within milliseconds of a change and never wrong for longer
    than a relist; reads the runtime's health, its images, the node's eviction signals and what pods and node use;
    probes containers.

Owns
    `runtime.pods` (complete once the first full relist succeeded), `node.observed`, `node.images`, `probes.results`
    (complete once whatever ran before us was probed, at the latest 15 s after the first relist), `node.usage`,
    `pods.usage` (complete once read after the first full relist) and `events/pleg`.

Follows
    `pods.admitted`: the probes in the spec, and how far the pod is with its end. `pods.status`: which instance to
    probe and whether it has started; a container id named there that was not seen yet means a container was just
    started. Outside the bus: GetContainerEvents where the runtime has it, pidfds of the first process of every
    container and sandbox, and full relists. All but a relist are hints to look at one pod now; a late or repeated hint
    costs one look.

Answers
    GetUsage: what node and pods use, read again where the last reading is older than the request permits.

Persists
    Nothing that is missed. The runtime and /proc are the truth. What the probes of a pod have counted (results and
    failures in a row, holds, their moment within the period) is in `<run dir>/probes/<uid>.json`, replaced whole
    before a new result is published, and not written at all while results stay as they are.

On restart
    One full relist gives back everything, in a new incarnation; followers keep what they had until it is complete. The
    pidfds died with the process and are opened anew. What exited meanwhile shows as exited in the list, with the exit
    code the runtime kept. Of a container that still runs every probe goes on where it was: a kill before the file is
    replaced forgets the last try, one after it nothing. Without a file (it was lost, or the probe was changed) there is
    no result until the probe ran again, at a random moment of its first period; podsync keeps the last result until
    then, so that nothing flaps.
"""
