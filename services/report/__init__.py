"""Describes the agent for an operator: its processes, streams and pods.

Reads the machine's process table and the lock files; everything else is an argument.
"""
