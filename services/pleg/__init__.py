"""pleg: observes the container runtime and the machine, publishes what it sees, and changes nothing.

Purpose
    Keeps one observation per pod that the runtime has, newer within milliseconds of a change and never wrong for longer
    than a relist; reads the runtime's health, its images, the node's eviction signals and what pods and node use;
    probes containers.

Owns
    `runtime.pods` (complete once the first full relist succeeded), `node.observed`, `node.images`, `probes.results`
    (complete once whatever ran before us was probed, at the latest 15 s after the first relist), `node.usage`
    and `events/pleg`.

Follows
    `pods.probes`: the probes in the spec, and whether the pod terminates. `pods.status`: which instance to probe and
    whether it has started; a container id named there that was not seen yet means a container was just started. Outside
    the bus: GetContainerEvents where the runtime has it, pidfds of the first process of every
    container and sandbox, and full relists. All but a relist are hints to look at one pod now; a late or repeated hint
    costs one look.

Answers
    GetUsage: what node and pods use, read again where the last reading is older than the request permits. Pods are
    read every 10 s for 5 minutes after a request for them, else not at all. GetCgroups: every number of every cgroup of
    pods.

Persists
    Nothing that must survive: everything is read again from the runtime and /proc. The counts of a pod's probes
    (results and failures in a row, holds, their moment within the period) are in `<run dir>/probes/<uid>.json`. The
    file is replaced atomically before a new result is published, and not written while results stay as they are. The
    newest record of the kernel's log about a killed process is in `<run dir>/oom-record`.

On restart
    One full relist restores everything, in a new incarnation; followers keep their replicas until it is complete. The
    pidfds ended with the process and are opened again. A container that exited meanwhile is listed as exited, with the
    exit code that the runtime kept. The probes of a running container continue with their counts: a kill before the
    file is replaced loses the last try, one after it loses nothing. Without a file (it was lost, or the probe was
    changed) there is no result until the probe has run again, at a random moment of its first period; until then
    podsync keeps the last result, so that nothing flaps.
"""
