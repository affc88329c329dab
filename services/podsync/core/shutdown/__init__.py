"""Decides in which order the pods stop when the machine shuts down, how long each may take, and when the machine may
go on (node.md 3). Must not know D-Bus, calls or streams.

`sequence` has the way through the groups of pods, `remaining` the pods of which something is left, `record` the form on
disk.
"""
