"""Reports the node and its pods: status is the only process that writes their objects to the API server.

Purpose
    Decides the node's Ready condition from the observations of pleg and the beats of the processes that pods need
    (a bootstrap without beats is a trouble in the beat and no condition), joins it with the pressure conditions of
    podsync, and writes every Kubernetes Event to the log. With an API server it registers the node, keeps its status
    and its lease, and writes pod statuses, mirror pods and Events. It keeps the CSINode, and what CSI drivers add to
    the Node. It deletes the ResourceSlices of drivers that are not registered any more.

Owns
    `events/status`; `volumes.reported`, the volumesInUse of the Node after each comparison.

Follows
    `pods.status`, `pods.admitted`, `pods.desired`, `pods.api_status`, `pods.mirrors`, `node.pressure`,
    `node.shutdown`, `node.observed`, `node.object`, `node.resources`, `node.images`, `node.config`,
    `plugins.registered`, `volumes.in_use`, every `events/<service>`, and all beats.

Answers
    ReviewToken, ReviewAccess, RequestToken, RequestPodCertificate, PatchClaimStatus: with the answer of the API server;
    RequestToken with the token of the record, for a pod that sources has from its record.

Persists
    `<root dir>/status/`: the node's conditions as last published, saved before they are published, for their
    transition times: without an API server it is their only copy; with them their newest 200 changes, which
    `bulkhead explain node` shows and nothing decides by. And of the present start of the agent, named by its
    supervisord: that it was recorded, that the Node was registered, whether the Node was cordoned; and which foreign
    allocatable this agent set.
    With `offlinePods` the tokens issued for pods of this node, encrypted, in `<root dir>/bulkhead/offline/tokens/`,
    some seconds after they were issued; that of a pod that is gone is removed.
    `<run dir>/events/recorded.json`: which events have been recorded, and how often each kind as which object;
    without it some are sent again, and what the streams no longer show is counted from one.

On restart
    The lease is renewed first and waits for nothing. A Node that was registered under the same supervisord is not
    created again; a process killed between the creation and its record creates it again, and finds it there. Transition
    times come from the record and from the Node as the API server has it. Ready is first published when it is known:
    it waits for missing facts, and for up to 30 s for a process that has not reported since the start. Until then the
    Node keeps the condition it has. A CSI driver that is in the CSINode and not yet on `plugins.registered` stays there
    until that stream is complete. The same holds after a time in which this process was stopped: beats that it did
    not receive then are not counted as missing. Once every plugin has been known for 30 s, the ResourceSlices of all
    drivers that are not registered are deleted. Every pod status is compared again. Events that are on
    the streams already and older than the start count as logged by the process before. Those that it had not recorded
    are still on the writers' streams and are sent, under the same names as before: none is counted twice, and what
    happens again raises the count of the same Event object. Its own events that were not sent yet are lost.
"""
