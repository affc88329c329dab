"""Decides which pod to look at, which processes to watch and what to publish. Pure: the time is an argument."""
