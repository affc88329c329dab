"""What an operator sees of the agent: its processes, streams and pods, for those that show it.

Reads the machine's process table and the lock files; everything else is an argument.
"""
