"""podsync: the pod workers of the node.

Purpose: brings every desired pod to run and every other pod to an end; the only process that creates, starts, stops or
removes containers and sandboxes, and that writes cgroups. It sends the Node's addresses for pods to the runtime.

Owns: streams `pods.admitted`, `pods.volumes`, `pods.probes`, `pods.status`, `pods.pulls`, `node.pressure`,
`node.shutdown`, `node.resources`, `events/podsync`; the cgroups below kubepods; which cgroup the agent's processes, the
embedded containerd and the processes of the root cgroup are in, where that is configured; `pods/<uid>/containers` and
`pods/<uid>/etc-hosts`; the pod log directories.

Follows: `pods.desired`, `pods.api_status` (for metrics alone) and `node.object` (sources), `runtime.pods`,
`node.observed`, `node.usage` and `probes.results` (pleg), `volumes.mounted`, `devices.resources` and `claims.prepared`
(volume).

Answers: GetPodPreview, from its present state, which does not change. Requests from sources the objects of a
container's environment, Services, RuntimeClasses, pull secrets, and our Node before a pod is rejected because of its
labels; from status tokens of service accounts; from volume subpaths; from pleg the usage of pods when one is to be
evicted.

Persists: one checkpoint record per pod (admission verdict with the allocation and the placement, what the API server
names of its resource claims, resizes and the resources that containers have, state, grace period and its start, the
reason of its end, its last phase, attempts, back-offs, hooks pending or begun, status), the start number, the time of
the last pressure transitions, how far a shutdown of the machine is (and from it, for a Go kubelet,
`graceful_node_shutdown_state`), a bounded story per pod (for `bulkhead explain` alone), the records of image pulls
(`image_manager/`), user namespaces (`pods/<uid>/userns`); and for a Go kubelet
`device-plugins/kubelet_internal_checkpoint` and, with static policies, `cpu_manager_state` and `memory_manager_state`,
which follow from the records.

On restart: reads the checkpoint, publishes the admitted pods, lists each pod in the runtime before it shows a status or
acts on it, and continues with the next step; the list shows whether a call of the earlier process had an effect. A
postStart hook that was cut short is run again. A preStop hook is not: what a kill cut short stays undone, but a sleep
continues for the rest of its time. A pod with resource claims neither starts a container nor ends before volume has
published how far they are. A pod without a sandbox waits for its turn to start as if the earlier process had not been.
The cpuset of each running container is set once more. The files of the CPU and memory
managers count for pods without a record, which a Go kubelet admitted. Nothing is killed as an orphan before the
sources are complete, except a pod whose source lists another of its name (of a pod without a record, an annotation of
the sandbox names the source). A static pod that was rejected is admitted or rejected again after a start of
supervisord, not after a restart of podsync alone. A shutdown of the machine continues with the group that stops, and
with the rest of its time; in another boot of the machine the pods that it stopped start again. A finished pod may run
again, as another agent of the node started it: `finished` is published after that pod was listed in the runtime. A
static pod that a source lists continues with these containers; else the pod is ended again, before another static pod
of its name starts.
"""
