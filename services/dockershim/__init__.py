"""dockershim: serves CRI v1 in front of Docker Engine, for a node whose containers Docker runs. Off by default.

Purpose
    Translates each call of CRI into requests of Docker's API, calls the plugins of CNI for the network of a pod
    sandbox, copies Docker's logs into CRI's, and serves exec, attach and port-forward. What of CRI it does not do is in
    docs/docker.md, with the error that a caller gets.

Owns, follows, answers
    Nothing of the bus: the agent reaches it over its socket, `<run dir>/dockershim/dockershim.sock`, as any runtime.

Persists
    Names and labels of Docker's containers say what they are. `networks/<sandbox id>.json` in its directory has the
    network of a sandbox, written before the first plugin runs and removed after the last one has released it.

On restart
    Containers run on. Logs are copied from where the copy stopped, which CRI's log itself shows; networks of sandboxes
    that Docker no longer has are released. Open sessions end, because its connections carry them.
"""
