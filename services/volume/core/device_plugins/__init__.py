"""Decides which device plugins are accepted, and which devices they have (node.md 4.15)."""
