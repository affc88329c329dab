"""Decides whether the node admits a pod, and which pods a critical one preempts.

A pod is admitted or rejected once; the verdict is saved with its record. Must not know what is started or shown.
"""
