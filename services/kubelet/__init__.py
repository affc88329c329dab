"""The `kubelet` executable: takes a kubelet's command line, evaluates it, and becomes supervisord over the services.

Not one of the seven services: it owns no stream, has no bus and decides nothing about the node. A forked child parses
and evaluates (`evaluation_child`) while the process of the agent imports what supervisord forks (`supervision`).

Process
    One process id from the command line to the end. The first SIGTERM or SIGINT stops the services and exits 0, the
    second kills them and exits 1; containers keep running in both cases. Exits 1 when bootstrap refuses the
    configuration after the child accepted it. SIGKILL leaves the services running; those of the next kubelet replace
    them. So does SIGUSR1, which has no handler: an upgrade sends it, and the unit counts it as no failure.
Files
    `<run dir>/supervisord.conf`, for supervisorctl; its socket and pid file beside it; `<log dir>/supervisord.log`.
    The lock file, held until the process ends and never inherited.
"""
