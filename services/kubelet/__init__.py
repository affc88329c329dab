"""The `kubelet` executable: takes a kubelet's command line, judges it whole, and becomes supervisord over the services.

Not one of the seven: it owns no stream, has no bus and decides nothing about the node. A forked child parses and
evaluates (`evaluation`), so that the process that stays for the life of the agent (`supervision`) keeps none of it.

Life
    One process from the command line to the end, whatever systemd or a script knows it by. The first SIGTERM or SIGINT
    stops the services and exits 0, the second kills them and exits 1; containers stay either way. Exits 1 when
    bootstrap refuses what was good a moment before. SIGKILL leaves the services working; those of the next one
    replace them.
Files
    `<run dir>/supervisord.conf`, for supervisorctl; its socket and pid file beside it; `<log dir>/supervisord.log`.
    The lock file, held to the end and never inherited.
"""
