"""podsync: the pod workers of the node.

Purpose: brings every desired pod to run and every other pod to an end; the only process that creates, starts, stops
or removes containers and sandboxes, and that writes cgroups.

Owns: streams `pods.admitted`, `pods.status`, `node.conditions`, `events/podsync`; the cgroups below kubepods;
`pods/<uid>/containers` and `pods/<uid>/etc-hosts`; the pod log directories.

Follows: `pods.desired` (sources), `runtime.pods` and `node.observed` (pleg), `volumes.mounted` (volume).

Answers: nothing but the bus's own snapshot and health requests.

Persists: one checkpoint record per pod (admission verdict, state, grace and its begin, attempts, back-offs, status),
the boot counter, the time of the last pressure transitions, and a bounded story per pod (not a truth, only told).

On restart: reads the checkpoint, publishes what it says, looks at each pod in the runtime before doing anything to it,
and goes on with the next step; a call of the earlier life may have happened or not, and the look tells. Nothing is
killed as an orphan before the sources are complete.
"""
