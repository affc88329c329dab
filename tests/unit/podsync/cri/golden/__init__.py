"""Specs and the CRI messages they must become, written by hand from the reference, not from the
output of our code. One module per section; `case` has the format."""
