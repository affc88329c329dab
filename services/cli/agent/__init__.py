"""The agent of this machine, asked over its run directory: state, usage, events, logs, stories, a bundle, restarts."""
