"""What the node and its pods are reported to be; the one process that will write to the API server.

Purpose
    Judges the node's Ready condition from what pleg observed and from the beats of all processes, joins it with the
    pressure conditions podsync judges, confirms pod statuses, and writes every Kubernetes Event to the log.

Owns
    `node.status`, `status.written` and `events/status`.

Follows
    `pods.status`, `node.conditions`, `node.observed`, every `events/<service>`, and all beats.

Answers
    Nothing.

Persists
    `<root dir>/status/`: the node's conditions as last published, saved before they are published, for their
    transition times. With no API server nobody else keeps them.

On restart
    Transition times come from the record. Nothing about Ready is said before it is known: a process that has not been
    heard of for less than 30 s since the start, or facts that are not in yet, hold the first word back. Pod statuses
    are confirmed again from their stream. Events older than the start are taken as logged by the life before.
"""
