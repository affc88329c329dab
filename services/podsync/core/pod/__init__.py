"""One pod on this node: its record, what is saved of it, its lifecycle, and the events and instructions about it.

Every room that decides about a pod imports this one. Knows nothing of how a pod is synced, shown or admitted.
"""
