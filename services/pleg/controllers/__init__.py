"""Keeps pleg's state between events: relists, looks at single pods, process watches and probes."""
