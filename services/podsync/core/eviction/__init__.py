"""Decides which eviction thresholds are met, which pod is evicted next, and with which message (node.md 5).
Must not know tracked pods or calls: the pods to rank are `Candidate` values.
"""
