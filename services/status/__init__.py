"""What the node and its pods are reported to be; the one process that writes to the API server.

Purpose
    Judges the node's Ready condition from what pleg observed and from the beats of the processes that pods need
    (bootstrap's silence is a trouble in the beat and no condition), joins it with the pressure conditions podsync
    judges, and writes every Kubernetes Event to the log. With an API server it registers the node, keeps its status and
    its lease, writes pod statuses, mirror pods and Events; alone it confirms pod statuses as they come.

Owns
    `node.status`, `status.written` and `events/status`.

Follows
    `pods.status`, `pods.admitted`, `pods.desired`, `pods.mirrors`, `node.conditions`, `node.observed`, `node.object`,
    `node.resources`, `node.images`, every `events/<service>`, and all beats.

Answers
    ReviewToken, ReviewAccess, RequestToken: what the API server says to them.

Persists
    `<root dir>/status/`: the node's conditions as last published, saved before they are published, for their
    transition times: alone nobody else keeps them. And the present start of the agent (which supervisord): that it was
    recorded, that the Node was registered, and which foreign allocatable this agent set.
    `<run dir>/events/recorded.json`: which events have been recorded, and how often each kind as which object;
    without it some are sent again, and what the streams no longer show is counted from one.

On restart
    The lease is renewed first and waits for nothing. A Node that was registered under the same supervisord is not
    created again; a process killed between the two creates it again, which finds it there. Transition times come
    from the record and from the Node as the API server has it. Nothing about Ready is said before it is known: a
    process that has not been heard of for less than 30 s since the start, or facts that are not in yet, hold the
    first word back, and what the Node says stays. So it is after a time in which this process was stopped: what it
    did not hear then is nobody's silence. Pod statuses are confirmed again from their stream. Of the events that
    are on the streams already, those older than the start are taken as logged by the life before. What it had not
    recorded is still on the writers' streams and is sent, under names that are the same in every life: nothing is
    counted twice, and what happens again counts up the object of before. Its own events that were not sent yet are
    lost.
"""
