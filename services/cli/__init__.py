"""The operator's command line `bulkhead`: shows the agent, its logs, pods and events, explains a pod, checks and shows
a configuration, restarts a service.

`agent` asks the processes of a run directory, `report` and `pod_rows` decide what that means, `command` and
`agent_commands` name options and exit codes and import the code of each subcommand when that subcommand runs.
"""
