"""Has one pod on this node: its record, what is saved of it, its lifecycle, and the events and instructions about it.
Every room that decides about a pod imports this one. Must not know how a pod is synced, shown or admitted.
"""
