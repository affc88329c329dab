"""Evaluates the configuration, and keeps the credentials with which the other six services start.

Purpose
    Reads flags and configuration, refuses what cannot work with one line per problem, provides the serving certificate,
    resolves the kubeconfig, and writes the manifest of bus addresses. Starts the embedded containerd where the
    configuration has one. Where the configuration requires it, requests the client certificate (with the bootstrap
    kubeconfig first, with the present certificate later) and the serving certificate from the API server, and renews
    them. Gives the machine the kernel settings of a kubelet, and keeps the utility chains of iptables.
Owns
    Streams `certificates`, `node.config` and `events/bootstrap`; config.json, manifest.json, credentials/ and
    containerd/ in the run directory; the self-signed pair and the certificate stores in the certificate directory; the
    kubeconfig where there is a bootstrap kubeconfig; the directory of `--dynamic-config-dir`; supervisord's program
    `containerd`.
Follows
    `node.object`, for the addresses of a serving certificate that is requested, and for the configuration that the Node
    names, with `objects.changed` (sources answers GetObject for that ConfigMap); only then. `pods.desired` and
    `pods.status`, with `runOnce` only: when all pods are done it ends supervisord. The beats of all, where systemd
    waits for READY or the lock file is watched; of sources with `runOnce`. The files: configuration, flags, serving
    pair, kubeconfig and the files it names, the current client certificate, its own two files and their directories,
    and the lock files, by inotify. What an exec plugin gave is renewed before it ends.
Answers
    RenewCredentials: for the credentials in force, which got a 401, runs their exec plugin again, with growing pauses,
    and looks at once whether a certificate that it keeps valid has ended.
Persists
    config.json, manifest.json and credentials/ (0600, atomic), in the run directory, with `runOnce` run-once.json with
    the outcomes so far; the self-signed pair; the certificate stores. While a certificate is requested: its key and
    request in `<run dir>/<which>-certificate.pending` (without rotation `kubelet-client.key.tmp`), and in `<run
    dir>/requesting/` the identity that requests it.
On restart
    Under the same supervisord it goes on with the configuration in config.json, which names its generation: a service
    that restarts never works by another configuration than the others. An edit, good or bad, is reported and changes
    nothing. It counts at the next start of the agent; at SIGHUP to bootstrap, or at once with `--reload-config`, when a
    checked configuration replaces config.json and each service that reads what has changed restarts by itself; and at a
    reload of supervisord (SIGHUP), which is a new generation and restarts all services. A kill during a reload leaves
    the file before or the one after it; a SIGHUP that no file followed has to be repeated. A bad configuration leaves
    the last good one in force at a reload, and ends supervisord on a fresh start. Its own two files are written again
    when they were removed or changed. Credentials are written only when they differ; a kubeconfig that has become bad,
    or a plugin that fails, leaves those in force and is tried again. On a fresh start a plugin that can be run but
    fails or hangs (5 s) leaves the agent without credentials until it answers: a trouble, asked again with growing
    pauses of at most 8 s. A plugin that cannot be run, or a file that cannot be read, refuses.
    With `--dynamic-config-dir` the Node may name a ConfigMap as its configuration. Each version is saved before it is
    assigned, and assigned before it is brought into force by a reload; config.json names the source in force. A kill
    between two of these steps repeats the second one. A version that is invalid is not used, and one that makes a
    service crash within the first 10 minutes is rejected, by a record: the last known good one, or the local
    configuration, comes into force. A start of bootstrap looks for crashes before it uses config.json, as bootstrap may
    be the service that crashes.
    A request for a certificate that waits for its answer is continued, with its key: no second one is made. A
    certificate that is missing, or expired while the API server answers, ends a kubelet, whose next start bootstraps
    again; here bootstrap itself returns to the bootstrap kubeconfig, and nothing ends. Until the first certificate is
    there the agent has no credentials, and static pods run.
    No service needs a running bootstrap: killed, it leaves all files for the others.
"""
