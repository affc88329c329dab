"""Clocks as arguments, moments as Kubernetes writes them, and delays that grow."""
