"""podsync: the pod workers of the node.

Purpose: brings every desired pod to run and every other pod to an end; the only process that creates, starts, stops
or removes containers and sandboxes, and that writes cgroups.

Owns: streams `pods.admitted`, `pods.volumes`, `pods.probes`, `pods.status`, `pods.pulls`, `node.pressure`,
`node.resources`, `events/podsync`; the cgroups below kubepods; which cgroup the agent's processes, the embedded
containerd and the processes of the root cgroup are in, where that is configured; `pods/<uid>/containers` and
`pods/<uid>/etc-hosts`; the pod log directories.

Follows: `pods.desired` and `node.object` (sources), `runtime.pods`, `node.observed`, `node.usage` and
`probes.results` (pleg),
`volumes.mounted` (volume).

Answers: GetPodPreview, from its present state, which does not change. Asks sources for what a container's environment
refers to, for Services, RuntimeClasses, pull secrets, and for our Node before a pod is refused because of its labels;
status for tokens of service accounts; volume for subpaths; pleg for what pods use when one is to be evicted.

Persists: one checkpoint record per pod (admission verdict with the allocation, resizes and what containers were
given, state, grace and its begin, why it was ended, the phase it came to, attempts, back-offs, hooks owed or begun,
status), the boot counter, the time of the last pressure transitions, a bounded story per pod (for `bulkhead explain`
alone), the records of image pulls (`image_manager/`) and user namespaces (`pods/<uid>/userns`).

On restart: reads the checkpoint, publishes what it has taken on, looks at each pod in the runtime before it shows a
status or does anything to it, and goes on with the next step; a call of the earlier process may have happened or not,
and the look shows it. A postStart hook that was cut short is run again. A preStop hook is not: what a kill cut short
stays undone, but a sleep goes on for the rest of its time. Nothing is killed as an orphan before the sources are
complete, but for a pod whose source lists another of its name. A static pod that was rejected is admitted or rejected
again after a start of supervisord, not after a restart of podsync alone.
"""
