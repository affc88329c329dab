"""Reads what the kernel says of this machine: memory, cgroups, mounts, listening sockets, SELinux.

Only reads; `listening_address` binds sockets.
"""
