"""Keeps volume's state between events: takes them in order, asks the core, calls plugins and adapters, publishes."""
