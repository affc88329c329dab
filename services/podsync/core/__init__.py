"""Decides what podsync does. Pure: events and the time go in, instructions come out.

`machine` is the one gate; `node_state` takes events in, those of sources and runtime by `listed_pods`; `outcomes` takes
the results of calls in; `story` writes lines for `bulkhead explain`. A `TrackedPod` is frozen: a decision returns
another one, alone or in a `Step`; `machine`, `node_state`, `listed_pods`, `container_cpus`, `admitting` and `resizes`
put it into `TrackedPods`. Everything else is in rooms, and imports other rooms only as this table allows:

    room           decides                                      imports
    machine        each step  container_cpus node_state outcomes saving admission placement pod start_order status sync
    container_cpus the cpusets of the containers of all pods    admission placement pod sync
    saving         what is saved and published after it         pod status
    node_state     which pods an event touches                  listed_pods outcomes admission pod sync
    listed_pods    which pods begin, and which end              admission pod
    outcomes       what the result of a call changes            images pod sync
    story          which events and instructions are shown      pod
    preview        what would become of a pod, for what-if      admission cgroups cri images node placement pod
    status         the API status of a pod                      placement pod sync
    sync           the next call for a pod                      images pod placement
    cri            the CRI messages for a pod                   cgroups node pod placement
    images         image calls, credentials, image access       pod
    admission      admitted or rejected, and who is preempted   pod placement
    cgroups        names and values of cgroups                  node placement
    checkpoints    the files of the Go kubelet's managers       placement
    shutdown       the order and the time of pods that stop     pod
    start_order    the order of pods that start                 pod
    log_rotation   rotation and removal of log files            nothing
    pod            state, lifecycle, events, instructions       placement
    node           facts and resources of the node              placement
    eviction       thresholds, pressure, which pod is evicted   nothing
    placement      which CPUs and memory a container gets       nothing
"""
