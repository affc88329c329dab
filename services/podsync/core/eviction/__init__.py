"""Eviction (node.md 5): which thresholds are met, which pod is evicted next, and with which message.

Values go in, values come out. Must not know records or calls: the pods to rank are given as `Candidate`.
"""
