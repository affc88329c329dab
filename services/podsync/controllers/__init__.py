"""Keeps podsync's state between events beside its core: the streams it follows, and the periodic work on logs, cgroups
and image records."""
