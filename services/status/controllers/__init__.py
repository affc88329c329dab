"""Keeps the state of status between events: node, lease, pods, events and reviews."""
