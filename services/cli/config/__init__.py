"""Finds, checks, shows and compares the kubelet configuration of this machine (`bulkhead config`)."""
