"""Has the exit codes that the `kubelet` executable expects of other processes of the agent."""

REFUSED = 78  # bootstrap cannot work with its configuration, and has ended supervisord
