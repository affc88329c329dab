"""Decides which pod to look at, which processes to watch and what to publish. Pure: time comes in as an argument."""
