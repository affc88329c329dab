"""The kubelet's HTTP API: what `kubectl logs`, the API server, monitoring and health checks request from a node.

Purpose
    Serve the HTTPS listener (10250), the read-only listener (10255, off by default) and the health listener (10248):
    `/healthz`, `/pods`, `/runningpods/`, `/configz`, `/metrics` and the pages below it, `/stats/summary`,
    `/containerLogs`, `/exec`, `/attach`, `/portForward`, `/run`, `/checkpoint`, `/logs/`, `/debug/pprof/`,
    `/debug/flags/v`, with the kubelet's own status codes and texts; `/bulkhead/explain`, from the records of podsync
    and status; the node page `/bulkhead/` with its event stream. Streams of containers go to the runtime's streaming
    server, over SPDY or WebSocket. Paths that are not served are answered as a kubelet answers paths it does not
    register (404 before authentication). The PodResources API is served on `pod-resources/kubelet.sock` below the root
    directory, and with the gate PodsAPI the Pods API on `pods-api/pods-api.sock`.
    `--node-page-port` serves the node page and `/bulkhead/explain` on 127.0.0.1, without credentials.
    `server.sock` in the run directory, which only the agent's user and root may enter, serves the same as the HTTPS
    listener, debugging handlers always included, without credentials: the command `bulkhead` uses it.

Owns
    No stream. The listeners, the sockets of both APIs, open streams and log files, a cache of who may do what, the
    counters of processes that have ended, and the samples of the last hour for the node page.

Follows
    `pods.desired`, `pods.api_status` and `pods.status` (what `/pods` shows and which container a request means),
    `pods.mirrors` (a request may name a static pod by its mirror's UID), `runtime.pods` (running pods and containers,
    log paths, whether a followed container still runs), and every service's beats (`/healthz`). For the node page also
    `pods.admitted`, `pods.pulls`, `volumes.mounted`, `node.object`, `node.observed`, `node.pressure`,
    `node.resources`, `node.shutdown` and `node.usage`; for the PodResources API also `devices.resources` and
    `claims.prepared`.
    The serving certificate, its key and the client CA are files of bootstrap's or the operator's, followed by inotify.
    A change of any of them counts for the next handshake or request. It ends no connection except those with a client
    certificate when a CA has left the client CA file.

Answers
    GetMetrics, GetStacks, GetProfile and SetVerbosity, as every service does. It requests the same of all services for
    its clients, readings of usage from pleg, reviews of tokens and access from status, and the URLs of streams from the
    runtime.

Persists
    The samples of the node page, once a minute, in `<run dir>/node-history.json`, and the counters that `/metrics` is
    about to show in `<run dir>/metrics.json` (both atomic). Nothing decides by them.

On restart
    Listeners are back as soon as the process is; open streams end and clients reconnect. Where the process is replaced
    by that of a newer supervisord, it releases the ports first and ends with its last open stream or request. An open
    stream needs no other process of ours: it survives the kill of any but this one. Answers are made from the
    streams' snapshots; when another service restarts, its last known state is shown until its streams are
    complete again. Open node pages connect again and get the complete state; their charts lack at most the minute
    before the restart. The sockets of both APIs and `server.sock` are replaced by a rename; a watch of the Pods API
    ends, and its client has all pods again from the next one. Counters on `/metrics` go on from what was shown last:
    what is killed before it has saved them has not shown them either. With a new supervisord and after a reload they
    begin again. A check of `/healthz` that depends on another service fails only after
    30 s without a beat of it.

Clients that are not authorized have few connections (`core/listening/connections.py`), of which an old one ends for a
new one. The head of a request is bounded in time, fields and bytes, and so are all bytes of such clients together. A
token over 16 KiB or not ASCII is refused at once, and so is one beyond the number that may be under review.
docs/limits.md has the numbers.

A log is read from a regular file in its pod's log directory. No link below that directory is followed, except with
docker, whose log files are links.

`/logs/` shows /var/log. A link is followed only where it ends below it, and a FIFO or device is not opened. Queries run
journalctl, which is killed when the client leaves. An archive of `/checkpoint` is written by the runtime.

A client certificate is requested and verified in the handshake, where one that is not verified ends the connection with
an alert; the Go kubelet answers 401, which Python's ssl module cannot do. At each request it counts while it has not
expired and no CA of its handshake has left the client CA file. A connection that may no longer count ends when it is
idle, and otherwise with the request in progress. docs/limits.md has the differences.
"""
