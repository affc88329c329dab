"""Specs and the CRI messages they must become, written by hand from the reference: what the kubelet does, not what our
code was seen to do. One module per section; `case` says how one is read."""
