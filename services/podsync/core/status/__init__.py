"""Computes the API status of a pod: containers, conditions, phase, and which changes may be published.
Decides nothing about calls; uses `sync` only to decide whether a container starts again.
"""
