"""Reads the facts of the node that the core needs. Decides nothing."""
