"""The kubelet's HTTP API: what `kubectl logs`, the API server, monitoring and health checks ask of a node.

Purpose
    Serve the HTTPS listener (10250), the read-only listener (10255, off by default) and the health listener (10248):
    `/healthz`, `/pods`, `/runningpods/`, `/configz`, `/containerLogs`, with the kubelet's own status codes and texts.
    Paths that are not served are answered as a kubelet answers paths it does not register (404 before
    authentication).

Owns
    No stream and no state. The listeners, the log files it has open, nothing else.

Follows
    `pods.desired` and `pods.status` (what `/pods` shows and which container a log request means), `runtime.pods`
    (running pods, log paths, whether a followed container still runs), and every service's beats (`/healthz`).
    The serving certificate, its key and the client CA are files of bootstrap's or the operator's, followed by inotify.

Answers
    No request on the bus.

Persists
    Nothing.

On restart
    Listeners are back as soon as the process is; open log streams end and clients reconnect. Answers are made from the
    streams' snapshots; when another service restarts, its last known state keeps being shown until it speaks again.
    A check of `/healthz` that depends on another service has 30 s to hear of it before it fails.

One difference from the Go kubelet: a client certificate that the client CA did not sign, or that has expired, fails in
the TLS handshake (alert `unknown ca`, `certificate expired`) where the kubelet completes it and answers 401. Python's
ssl module cannot request a certificate without verifying it. Both refuse the client.
"""
