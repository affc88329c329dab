"""Keeps the desired and the actual state of the world, and what is attached to this node. Pure."""
