"""Follows logind, which shuts the machine down: holds a lock that delays a shutdown, and reports when one begins.

`connection` is one connection to the system bus, `shutdown_watch` keeps one open and holds the lock, `max_delay` raises
the time for which logind waits at most. Knows no pod.
"""
