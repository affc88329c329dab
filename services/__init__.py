"""The seven compartments, one process each. They never import one another; what they share lies in `bus` and `shared`.

`launch` is the frame every one of them runs in.
"""
