"""Reads systemd units for the operator's commands: what systemd has loaded, and what it would start."""
