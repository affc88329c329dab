"""Builds the CRI messages of a pod: sandbox and container configuration, environment, mounts, DNS, identity.

A message follows from the spec and the node's facts. Must not know what is tracked of the pod, nor send anything.
"""
