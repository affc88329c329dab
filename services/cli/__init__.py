"""The operator's command line `bulkhead`. Each package has one purpose; a command imports its code when it runs.

`terminal` writes; `config` finds and checks the kubelet's configuration; `agent` asks the agent of this machine; `pods`
and `what_if` are about pods; `preflight` examines a node, `takeover` exchanges its kubelet. `command` joins them.
"""
