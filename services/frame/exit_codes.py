"""Exit codes between the processes of one agent; who waits for them is the `kubelet` executable."""

REFUSED = 78  # bootstrap cannot work with what it was given, and has ended supervisord
