"""Asks the agent of this machine over its run directory: state, usage, events, logs, stories, a bundle, restarts."""
